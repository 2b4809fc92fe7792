"""Prometheus metrics of jobs: counters named as in the Kubeflow training operator, the rest as elasticjob_*.

Only passes feed them, so the replica that leads is the only one that shows jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from elasticjob.api.troubles.causes import title_of
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ElasticJobStatus, Phase
from elasticjob.api.v1alpha1.scaleplan import PlanPhase, ScalePlan
from elasticjob.controllers.parts.frameworks import label_of
from elasticjob.controllers.passes.conclusions import COMPLETE, FAILED, SUSPENDED
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.kinds import Key

LABELS: Final = ("job_namespace", "framework")
JOB: Final = ("job_namespace", "job_name")
TROUBLE: Final = ("cause", "title")
ENDS: Final = tuple(phase for phase in PlanPhase if phase.is_terminal)
CLOCKS: Final[Mapping[Phase, tuple[str, ...]]] = {
    Phase.SUCCEEDED: (COMPLETE,),
    Phase.FAILED: (FAILED,),
    Phase.SUSPENDED: (SUSPENDED,),
    Phase.RESTARTING: ("Restarting",),
    Phase.SCALING: ("Scaling",),
    Phase.RUNNING: (SUSPENDED, "Running", "Restarting", "Scaling"),
}
"""The conditions with whose last transition a phase begins."""
NO_NODE: Final = (SUSPENDED, "Running")
"""The same of a job that should run and of which no node does: neither plans nor new pods end its wait."""
WAITS: Final = (1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Seconds: pods whose image is on the machine begin within some, those that wait for GPUs within hours."""


@dataclass
class _Known:
    """A job as the last pass found it: `roles` lacked memory and get no more, `plans` are open."""

    namespace: str
    framework: str
    phase: Phase | None = None
    cause: str = ""
    steps: bool = False
    roles: dict[str, datetime] = field(default_factory=dict)
    plans: frozenset[str] | None = None


class Phases:
    """A gauge of the objects of a kind, by namespace and phase."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry) -> None:
        self._gauge = Gauge(name, text, ("job_namespace", "phase"), registry=registry)
        self._known: dict[Key, str] = {}

    def show(self, key: Key, phase: StrEnum | None) -> None:
        """Count an object in its phase and no longer in the one before; None: it has none, or is gone."""
        before = self._known.get(key)
        if phase == before:
            return
        if before is not None:
            del self._known[key]
            self._gauge.labels(key.namespace, before).dec()
        if phase is not None:
            self._known[key] = phase.value
            self._gauge.labels(key.namespace, phase.value).inc()


class Counters:
    """`training_operator_jobs_{created,successful,failed,…}_total` by namespace and framework,
    `elasticjob_jobs` and `elasticjob_dijobs` by namespace and phase, `elasticjob_time_to_first_step_seconds`,
    and of each job `elasticjob_job_*` and `elasticjob_plans_total`: these end with the job.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"training_operator_jobs_{name}", text, LABELS, registry=registry)

        self._created = counter("created", "Jobs that were accepted.")
        self._successful = counter("successful", "Jobs that succeeded.")
        self._failed = counter("failed", "Jobs that failed.")
        self._restarted = counter("restarted", "Restarts of jobs, of nodes and of workers in them.")
        self._deleted = counter("deleted", "Jobs that were deleted.")

        def of_job(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"elasticjob_job_{name}", text, (*JOB, *labels), registry=registry)

        self._jobs = Phases("elasticjob_jobs", "Jobs by phase.", registry)
        self.dijobs = Phases("elasticjob_dijobs", "DIJobs by phase.", registry)
        self._phase = of_job("phase_timestamp_seconds", "When the job entered its present phase.", "phase")
        self._master = of_job(
            "master_ready", "Whether the master of a job that is meant to run is ready, 1 or 0."
        )
        self._left = of_job("restarts_left", "Failures of pods that the node with the most may still have.")
        self._allowed = of_job("restarts_allowed", "How often that node may be replaced after a failure.")
        self._ceiling = of_job(
            "memory_ceiling_timestamp_seconds",
            "When a node was out of memory last that could get no more.",
            "role",
        )
        self._trouble = of_job(
            "trouble", "Whether a job has this REASON; its title says what it is.", *TROUBLE
        )
        text = "Plans of a job that ended, by their outcome."
        self._plans = Counter("elasticjob_plans", text, (*JOB, "outcome"), registry=registry)
        self._first_step = Histogram(
            "elasticjob_time_to_first_step_seconds",
            "Time from the creation of a job to its first step.",
            registry=registry,
            buckets=WAITS,
        )
        text = "Whether the operator sends jobs to Brain, 1 or 0."
        self._brain = Gauge("elasticjob_operator_uses_brain", text, registry=registry)
        self._known: dict[Key, _Known] = {}

    def uses_brain(self, brain: bool) -> None:
        """Show whether jobs are sent to Brain, which is optional."""
        self._brain.set(brain)

    def note_phase(self, job: ElasticJob, now: datetime) -> None:
        """Note the phase of a job, and its first step unless it had trained before this process saw it."""
        training = job.status.training
        steps = bool(training and training.step)
        known = self._known.get(job.key)
        created = job.metadata.creation_timestamp
        if steps and known and not known.steps and created:
            self._first_step.observe(max(0.0, (now - created).total_seconds()))
        self._keep(job, job.status, steps)

    def saw(self, job: ElasticJob, new: ElasticJobStatus) -> None:
        """Count what a written status says beyond the one before."""
        labels = (job.metadata.namespace, label_of(job))
        known = self._known.get(job.key)
        self._keep(job, new, known.steps if known else False)
        if job.status.phase is None:
            self._created.labels(*labels).inc()
        for counter, type_ in ((self._successful, COMPLETE), (self._failed, FAILED)):
            if is_true(new.conditions, type_) and not is_true(job.status.conditions, type_):
                counter.labels(*labels).inc()
        self._restarted.labels(*labels).inc(max(0, (new.restarts or 0) - (job.status.restarts or 0)))

    def note_look(
        self,
        key: Key,
        master: bool | None,
        spent: Mapping[str, datetime],
        restarts: tuple[int, int] | None = None,
    ) -> None:
        """Show whether the job's master is ready (None: it needs none now), when nodes of which roles had the
        most memory that they may get, and lacked more, and the restarts that are left of those allowed."""
        if (known := self._known.get(key)) is None:
            return
        left, allowed = restarts or (None, None)
        for gauge, value in ((self._master, master), (self._left, left), (self._allowed, allowed)):
            if value is None:
                gauge.remove(*key)
            else:
                gauge.labels(*key).set(value)
        for role, at in spent.items():
            known.roles[role] = max(at, known.roles.get(role, at))
            self._ceiling.labels(*key, role).set(known.roles[role].timestamp())

    def note_plans(self, key: Key, plans: Iterable[ScalePlan]) -> None:
        """Count the plans of a job that were open when this process saw them last, and have ended."""
        if (known := self._known.get(key)) is None:
            return
        phases = {plan.metadata.uid: plan.status.phase for plan in plans}
        if known.plans is None:  # a rate needs a 0 to begin with
            for end in ENDS:
                self._plans.labels(*key, end.value)
        for uid in known.plans or ():
            if (phase := phases.get(uid)) in ENDS:
                self._plans.labels(*key, phase.value).inc()
        known.plans = frozenset(uid for uid, phase in phases.items() if phase not in ENDS)

    def forget(self, key: Key) -> None:
        """Count a job that is gone, once, and end its series."""
        if (known := self._known.pop(key, None)) is None:
            return
        self._deleted.labels(known.namespace, known.framework).inc()
        self._jobs.show(key, None)
        for gauge in (self._master, self._left, self._allowed):
            gauge.remove(*key)
        if known.phase is not None:
            self._phase.remove(*key, known.phase.value)
        if known.cause:
            self._trouble.remove(*key, known.cause, title_of(known.cause))
        for role in known.roles:
            self._ceiling.remove(*key, role)
        for end in ENDS:
            self._plans.remove(*key, end.value)

    def _keep(self, job: ElasticJob, status: ElasticJobStatus, steps: bool) -> None:
        known = self._known.get(job.key) or self._begin(job)
        self._jobs.show(job.key, status.phase)
        if known.phase is not None and known.phase is not status.phase:
            self._phase.remove(*job.key, known.phase.value)
        if status.phase is not None and (since := _since(job, status)):
            self._phase.labels(*job.key, status.phase.value).set(since.timestamp())
        if known.cause and known.cause != status.reason:
            self._trouble.remove(*job.key, known.cause, title_of(known.cause))
        if status.reason:
            self._trouble.labels(*job.key, status.reason, title_of(status.reason)).set(1)
        known = replace(known, framework=label_of(job), phase=status.phase, steps=steps)
        self._known[job.key] = replace(known, cause=status.reason or "")

    def _begin(self, job: ElasticJob) -> _Known:
        """Return a job that is new here; its counters begin at 0, so that its first failure has a rate."""
        known = _Known(job.metadata.namespace, label_of(job))
        for counter in (self._created, self._successful, self._failed, self._restarted, self._deleted):
            counter.labels(known.namespace, known.framework)
        return known


def _since(job: ElasticJob, status: ElasticJobStatus) -> datetime | None:
    """Return when the phase of a status began: with the last transition of the conditions that tell it."""
    clock = CLOCKS.get(status.phase, NO_NODE) if status.phase else NO_NODE
    if status.phase is Phase.RESTARTING and not is_true(status.conditions, "Running"):
        clock = NO_NODE
    changed = (each.last_transition_time for each in status.conditions if each.type in clock)
    return max(filter(None, changed), default=job.metadata.creation_timestamp)
