"""Prometheus metrics of jobs: counters named as in the Kubeflow training operator, the rest as elasticjob_*.

Only passes feed them, so the replica that leads is the only one that shows jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ElasticJobStatus, Phase
from elasticjob.controllers.parts.frameworks import label_of
from elasticjob.controllers.passes.conclusions import COMPLETE, FAILED
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.kinds import Key

LABELS: Final = ("job_namespace", "framework")
WAITS: Final = (1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Seconds: pods whose image is on the machine begin within some, those that wait for GPUs within hours."""


@dataclass
class _Known:
    """A job as the last pass found it."""

    namespace: str
    framework: str
    phase: Phase | None
    steps: bool


class Counters:
    """`training_operator_jobs_{created,successful,failed,…}_total` by namespace and framework,
    `elasticjob_jobs` by namespace and phase, and `elasticjob_time_to_first_step_seconds`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"training_operator_jobs_{name}", text, LABELS, registry=registry)

        self._created = counter("created", "Jobs that were accepted.")
        self._successful = counter("successful", "Jobs that succeeded.")
        self._failed = counter("failed", "Jobs that failed.")
        self._restarted = counter("restarted", "Nodes of jobs that were replaced after a failure or a kill.")
        self._deleted = counter("deleted", "Jobs that were deleted.")
        self._jobs = Gauge("elasticjob_jobs", "Jobs by phase.", ("job_namespace", "phase"), registry=registry)
        self._first_step = Histogram(
            "elasticjob_time_to_first_step_seconds",
            "Time from the creation of a job to its first step.",
            registry=registry,
            buckets=WAITS,
        )
        self._known: dict[Key, _Known] = {}

    def found(self, job: ElasticJob, now: datetime) -> None:
        """Note the phase of a job, and its first step unless it had trained before this process saw it."""
        training = job.status.training
        steps = bool(training and training.step)
        known = self._known.get(job.key)
        created = job.metadata.creation_timestamp
        if steps and known and not known.steps and created:
            self._first_step.observe(max(0.0, (now - created).total_seconds()))
        self._keep(job, job.status.phase, steps)

    def saw(self, job: ElasticJob, new: ElasticJobStatus) -> None:
        """Count what a written status says beyond the one before."""
        labels = (job.metadata.namespace, label_of(job))
        known = self._known.get(job.key)
        self._keep(job, new.phase, known.steps if known else False)
        if job.status.phase is None:
            self._created.labels(*labels).inc()
        for counter, type_ in ((self._successful, COMPLETE), (self._failed, FAILED)):
            if is_true(new.conditions, type_) and not is_true(job.status.conditions, type_):
                counter.labels(*labels).inc()
        self._restarted.labels(*labels).inc(max(0, (new.restarts or 0) - (job.status.restarts or 0)))

    def forget(self, key: Key) -> None:
        """Count a job that is gone, once."""
        if known := self._known.pop(key, None):
            self._deleted.labels(known.namespace, known.framework).inc()
            self._move(known.namespace, known.phase, None)

    def _keep(self, job: ElasticJob, phase: Phase | None, steps: bool) -> None:
        known = self._known.get(job.key)
        namespace = job.metadata.namespace
        self._move(namespace, known.phase if known else None, phase)
        self._known[job.key] = _Known(namespace, label_of(job), phase, steps)

    def _move(self, namespace: str, old: Phase | None, new: Phase | None) -> None:
        if old is not None:
            self._jobs.labels(namespace, old.value).dec()
        if new is not None:
            self._jobs.labels(namespace, new.value).inc()
