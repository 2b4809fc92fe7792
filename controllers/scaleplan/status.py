"""Writes to a ScalePlan: its start, its end, and its owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase, ScalePlan, ScalePlanStatus
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.plan import Apply, Note, Plan, group
from elasticjob.kube.objects.conditions import set_condition
from elasticjob.kube.objects.kstatus import Progress, Verdict, with_progress
from elasticjob.kube.objects.views import Condition

_CONDITIONS: Final = {
    PlanPhase.PENDING: ("Complete", "False", Verdict.RECONCILING),
    PlanPhase.SCALING: ("Complete", "False", Verdict.RECONCILING),
    PlanPhase.SUCCEEDED: ("Complete", "True", Verdict.READY),
    PlanPhase.FAILED: ("Failed", "True", Verdict.STALLED),
    PlanPhase.SUPERSEDED: ("Superseded", "True", Verdict.READY),
}


@dataclass(frozen=True)
class End:
    """How a plan ended: Succeeded, Failed or Superseded."""

    plan: ScalePlan
    phase: PlanPhase
    reason: str
    message: str

    def written(self, now: datetime) -> Apply:
        """Return the write of its final status."""
        changes = tuple(self.plan.status.changes)
        return _status(self.plan, self.phase, self.reason, self.message, now, changes)

    @property
    def note(self) -> Note:
        """The event at the job."""
        failed = self.phase is PlanPhase.FAILED
        return Note(f"ScalePlan{self.phase}", f"{self.plan.metadata.name}: {self.message}", warning=failed)


def ending(reason: str, ends: Iterable[End], now: datetime) -> Plan:
    """Return the decision to end plans."""
    found = tuple(ends)
    writes = (end.written(now) for end in found)
    return Plan(reason, groups=group(writes), details=tuple(end.note for end in found))


def begin(plan: ScalePlan, changes: tuple[str, ...], now: datetime) -> Apply:
    """Return the status of a plan that is being carried out."""
    return _status(plan, PlanPhase.SCALING, "Scaling", "; ".join(changes), now, changes)


def pending(plan: ScalePlan, why: str, now: datetime) -> Apply:
    """Return the status of a plan that cannot begin yet."""
    return _status(plan, PlanPhase.PENDING, "Waiting", why, now, ())


def adoption(plan: ScalePlan, job: ElasticJob) -> Apply:
    """Return the write that makes a job the owner of a plan."""
    return Apply(SCALEPLAN, _about(plan, ownerReferences=[controlled_by(job)]))


def _status(
    plan: ScalePlan, phase: PlanPhase, reason: str, message: str, now: datetime, changes: tuple[str, ...]
) -> Apply:
    type_, value, verdict = _CONDITIONS[phase]
    generation = plan.metadata.generation
    condition = Condition(
        type=type_, status=value, reason=reason, message=message, observed_generation=generation
    )
    status = ScalePlanStatus(
        phase=phase,
        conditions=with_progress(
            set_condition(plan.status.conditions, condition, now),
            Progress(verdict, reason, message),
            generation,
            now,
        ),
        observed_generation=generation,
        start_time=plan.status.start_time or (now if phase is PlanPhase.SCALING else None),
        finish_time=now if phase.is_terminal else None,
        changes=list(changes),
    )
    return Apply(SCALEPLAN, _about(plan) | {"status": status.manifest()}, "status")


def _about(plan: ScalePlan, **more: Any) -> dict[str, Any]:
    metadata = {
        "name": plan.metadata.name,
        "namespace": plan.metadata.namespace,
        "uid": plan.metadata.uid,
        **more,
    }
    return manifest_of(SCALEPLAN, metadata)
