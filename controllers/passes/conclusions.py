"""Questions about a job that its own spec and status answer: is it over, is it ours."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.kube.objects.conditions import is_true

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
ENDINGS: Final = frozenset({COMPLETE, FAILED})
"""Conditions that say that a job is over."""
SUSPENDED: Final = "Suspended"
OPERATOR: Final = "elasticjob"
"""The value of `spec.managedBy` that, like "", means this operator."""


def is_over(job: ElasticJob) -> bool:
    """Whether the job has succeeded or failed; nothing makes it run again."""
    return any(is_true(job.status.conditions, type_) for type_ in ENDINGS)


def is_ours(job: ElasticJob) -> bool:
    """Whether this operator may touch the job."""
    return job.spec.managed_by in ("", OPERATOR)
