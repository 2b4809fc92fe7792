"""The webhook of ElasticJobs: validation only."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import Review, Webhook


def validate(review: Review[ElasticJob]) -> Sequence[Problem]:
    """Return the problems of a job that is created or updated."""
    return problems(review.new, review.old) if review.new is not None else ()


WEBHOOK = Webhook(ELASTICJOB, validate=validate)
