"""Why a job waits in its queue, or what it has of it: a reason for tables, a sentence for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from elasticjob.api.sentences import amount
from elasticjob.controllers.kueue.demand import QueueRequest
from elasticjob.controllers.kueue.reclaim import CANNOT
from elasticjob.controllers.kueue.workload import ADMITTED, EVICTED, QUOTA_RESERVED, REQUEUED, Workload
from elasticjob.kube.objects.conditions import is_true

QUEUED: Final = "Queued"
DEACTIVATED: Final = "Deactivated"
CHECKING: Final = "AdmissionChecks"
IN_A_QUEUE: Final = "Admitted"


def explain(
    demand: QueueRequest, base: Workload | None, slices: Sequence[Workload], beside: Sequence[Workload] = ()
) -> tuple[str, str]:
    """Return the reason and the sentence of what a job has of its queue."""
    queue = f"queue {demand.queue}"
    if demand.suspended:
        return "", f"{queue}: the job is suspended, and asks for nothing"
    if base is None and demand.prebuilt:
        return QUEUED, f"{queue}: Workload {demand.prebuilt}, made beforehand, is not there for this job"
    if base is None:
        return QUEUED, f"{queue}: Workload {demand.base} is to be made"
    if base.is_admitted:
        return _admitted(demand, base, slices, beside)
    evicted = base.condition(EVICTED)
    if not base.spec.active:
        why = f": {evicted.message}" if evicted and evicted.status == "True" and evicted.message else ""
        how = "set its spec.active to true to queue the job again"
        return DEACTIVATED, f"{queue}: Workload {base.metadata.name} is deactivated{why}; {how}"
    if base.is_evicted and base.has_quota and evicted is not None:
        return evicted.reason, f"{queue}: the job leaves: {evicted.message}"
    if base.has_quota:
        open_ = (c for c in base.status.admission_checks if c.state != "Ready")
        checks = ", ".join(f"{c.name} is {c.state}{f' ({c.message})' if c.message else ''}" for c in open_)
        return CHECKING, f"{queue}: quota is reserved; {checks or 'it is about to be admitted'}"
    return _waits(queue, base)


def _waits(queue: str, base: Workload) -> tuple[str, str]:
    reserved, requeued = base.condition(QUOTA_RESERVED), base.condition(REQUEUED)
    state = base.status.requeue_state
    later = f"; it is tried again at {state.requeue_at:%H:%M:%S} UTC" if state and state.requeue_at else ""
    why = reserved.message if reserved else "Kueue has not looked at it yet"
    after = f"after {requeued.reason}, " if requeued and requeued.status == "True" else ""
    reason = "QueueUnavailable" if reserved and reserved.reason in CANNOT else QUEUED
    return reason, f"{queue}: {after}{why}{later}"


def _admitted(
    demand: QueueRequest, base: Workload, slices: Iterable[Workload], beside: Sequence[Workload]
) -> tuple[str, str]:
    mine = tuple(slices)
    counts = []
    for role in demand.roles:
        have = base.count(role.name) + sum(each.count(role.name) for each in mine if each.is_admitted)
        waits = sum(each.count(role.name) for each in mine if each.pending)
        short = f" of {role.wanted} that are wanted" if have < role.wanted else ""
        more = f", {waits} more wait" if waits else ""
        counts.append(f"{role.name} {have}{short}{more}")
    where = base.status.admission.cluster_queue if base.status.admission else ""
    leaving = sum(1 for each in mine if each.leaving and is_true(each.status.conditions, ADMITTED))
    going = f"; gives back {amount(leaving, 'slice')}" if leaving else ""
    larger = f"; more for them waits{_waits('', beside[0])[1]}" if beside else ""
    return IN_A_QUEUE, f"queue {demand.queue}, ClusterQueue {where}: {', '.join(counts)}{going}{larger}"
