"""The webhook of JobResources: adds the label of the job, and validates."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.api.v1alpha1.checks.common import is_label
from elasticjob.api.v1alpha1.checks.jobresource import problems
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import JsonPatchOperation, Review, Webhook
from elasticjob.webhooks.patches import missing_labels


def mutate(review: Review[JobResource]) -> Sequence[JsonPatchOperation]:
    """Add the label that names the job."""
    if review.new is None or not is_label(review.new.spec.selector.name):
        return ()
    return missing_labels(review, {LABEL_JOB: review.new.spec.selector.name})


def validate(review: Review[JobResource]) -> Sequence[Problem]:
    """Return the problems of a JobResource that is created or updated."""
    return problems(review.new, review.old) if review.new is not None else ()


WEBHOOK = Webhook(JOBRESOURCE, mutate=mutate, validate=validate)
