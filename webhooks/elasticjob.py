"""The webhook of ElasticJobs: validates, and warns of what has no effect."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.api.v1alpha1.checks.advice import advice
from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import Review, Webhook


def validate(review: Review[ElasticJob]) -> Sequence[Problem]:
    """Return the problems of a job that is created or updated."""
    return problems(review.new, review.old) if review.new is not None else ()


def warn(review: Review[ElasticJob]) -> Sequence[str]:
    """Return a sentence for each thing that is accepted without effect; a refused job needs none."""
    if review.new is None or problems(review.new, review.old):
        return ()
    return [str(each) for each in advice(review.new, review.old)]


WEBHOOK = Webhook(ELASTICJOB, validate=validate, warn=warn)
