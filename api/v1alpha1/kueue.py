"""Names of Kueue on jobs and pods, and the queue that a job names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, Gang
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.problem import Problem

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""On jobs: the LocalQueue that admits them."""
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
"""On jobs: the WorkloadPriorityClass with which they wait there."""
MAX_EXEC_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""On jobs: how many seconds they may run in all, after which Kueue deactivates them."""
FLAVORS: Final = "elasticjob.dlrover/flavors"
"""On jobs: `any` where nodes of a role may have different flavours; otherwise all have that of the first."""
ANY: Final = "any"
WORKLOAD_OF: Final = "kueue.x-k8s.io/workload"
"""On pods: the Workload whose quota they use."""
POD_SET: Final = "kueue.x-k8s.io/podset"
"""On pods: the pod set of it that they are of."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""The scheduling gate of pods until Kueue has chosen their machine."""
QUOTA_GATE: Final = "elasticjob.dlrover/quota"
"""Our own, of pods of a queued DIJob until they have a place in its quota."""

ADMITTED: Final = "Admitted"
"""The condition of jobs: what their queue says of them."""
NOT_QUEUED: Final = "NotQueued"
"""Its reason where no queue does."""


class Condition(Protocol):
    """A condition of any kind of jobs."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...


def queue_of(job: CustomResource) -> str:
    """Return the LocalQueue that a job names, "" for none."""
    named = job.metadata.labels.get(QUEUE_NAME, "")
    if named or not isinstance(job, ElasticJob):
        return named
    scheduling = job.spec.run_policy.scheduling
    return scheduling.queue if scheduling.gang is Gang.NONE else ""


def waits_in_a_queue(conditions: Iterable[Condition]) -> bool:
    """Whether a job waits for its queue to admit it."""
    said = next((each for each in conditions if each.type == ADMITTED), None)
    return said is not None and said.status == "False" and said.reason != NOT_QUEUED


def queue_stays(
    old: CustomResource, new: CustomResource, conditions: Iterable[Condition], way_out: str
) -> Iterator[Problem]:
    """A job that runs stays in its queue, and out of all others, as Kueue's own jobs do (jobframework)."""
    before, now = queue_of(old), queue_of(new)
    waits = waits_in_a_queue(conditions)
    if before != now and not waits:
        labelled = old.metadata.labels.get(QUEUE_NAME) != new.metadata.labels.get(QUEUE_NAME)
        path = f"metadata.labels[{QUEUE_NAME}]" if labelled else "spec.runPolicy.scheduling.queue"
        yield Problem(path, f"the queue cannot change from {before!r} to {now!r} {way_out}")
    if not now:
        return
    had, has = (each.metadata.labels.get(PRIORITY_CLASS, "") for each in (old, new))
    if (had and not has) or (has and not had and not waits):
        word = "added" if has else "taken away"
        path = f"metadata.labels[{PRIORITY_CLASS}]"
        yield Problem(path, f"no class can be {word} {way_out}; another one may take its place at any time")
    had, has = (each.metadata.labels.get(MAX_EXEC_TIME, "") for each in (old, new))
    if had != has and not waits:
        yield Problem(f"metadata.labels[{MAX_EXEC_TIME}]", f"it cannot change {way_out}")


def unreadable_limit(old: CustomResource | None, new: CustomResource) -> Iterator[Problem]:
    """A limit of seconds is a number; a job that an earlier release accepted keeps what it has."""
    before, now = (each.metadata.labels.get(MAX_EXEC_TIME) if each else None for each in (old, new))
    if now is not None and now != before and longest_run(new.metadata.labels) is None:
        message = f"{now!r} is no number of seconds: write one from 1 to 999999999"
        yield Problem(f"metadata.labels[{MAX_EXEC_TIME}]", message)


def longest_run(labels: Mapping[str, str]) -> int | None:
    """Return how many seconds a job with these labels may run; None for one without a limit."""
    written = labels.get(MAX_EXEC_TIME, "")
    return int(written) if re.fullmatch("0*[1-9][0-9]{0,8}", written) else None
