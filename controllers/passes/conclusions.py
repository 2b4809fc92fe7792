"""Questions about a job or a plan that its own spec and status answer: is it over, is it ours."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.kube.objects.conditions import TRUE, find

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
ENDINGS: Final = frozenset({COMPLETE, FAILED})
"""Conditions that say that a job is over."""
SUSPENDED: Final = "Suspended"
IMPOSSIBLE: Final = "Impossible"
"""The reason of a plan that could not be carried out."""


def is_over(job: ElasticJob) -> bool:
    """Whether the job has succeeded or failed; nothing makes it run again."""
    return any(each.type in ENDINGS and each.status == TRUE for each in job.status.conditions)


def is_ours(job: ElasticJob) -> bool:
    """Whether this operator may touch the job."""
    return job.spec.is_ours


def why_impossible(plan: ScalePlan) -> str:
    """Return why a plan could not be carried out, "" for any other end."""
    found = find(plan.status.conditions, FAILED)
    return found.message if found and found.status == TRUE and found.reason == IMPOSSIBLE else ""
