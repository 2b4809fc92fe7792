"""What runPolicy.scheduling asks of a gang scheduler, and which API offers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, Gang
from elasticjob.api.v1alpha1.priorities import is_low

QUEUE: Final = "queue"
TIMEOUT: Final = "timeoutSeconds"
PRIORITIES: Final = "lowPriorityClassName"
"""Pods of one gang with different PriorityClasses."""

OFFERS: Final[Mapping[Gang, frozenset[str]]] = {
    Gang.KUBERNETES: frozenset(),
    Gang.COSCHEDULING: frozenset({TIMEOUT, PRIORITIES}),
    Gang.VOLCANO: frozenset({QUEUE, PRIORITIES}),
}
"""What each API has beside a least number of pods."""
ANY: Final = frozenset({Gang.REQUIRED, Gang.PREFERRED})
"""Gangs by whichever API there is."""

_MANY: Final = 1_000_000
"""Nodes of which the first and the last stand for all of a role with a share of high ones."""


def needs(job: ElasticJob) -> frozenset[str]:
    """Return what a job's gang needs beside a least number of pods, as fields of runPolicy.scheduling."""
    scheduling = job.spec.run_policy.scheduling
    asked = {
        QUEUE: bool(scheduling.queue),
        TIMEOUT: scheduling.timeout_seconds is not None,
        PRIORITIES: len(classes(job)) > 1,
    }
    return frozenset(field for field, given in asked.items() if given)


def class_of(job: ElasticJob, role: str, rank: int, count: int) -> str:
    """Return the PriorityClass of a node: that of low priority, the template's, the job's; "" without any."""
    spec, scheduling = job.spec.replica_specs[role], job.spec.run_policy.scheduling
    low = is_low(spec.priority, rank, count)
    by_template = str(spec.pod.get("priorityClassName") or "")
    return (
        (scheduling.low_priority_class_name if low else "") or by_template or scheduling.priority_class_name
    )


def classes(job: ElasticJob) -> frozenset[str]:
    """Return the PriorityClasses that nodes of a job may have, "" for the cluster's default."""
    return frozenset(class_of(job, role, rank, _MANY) for role in job.spec.roles for rank in (0, _MANY - 1))
