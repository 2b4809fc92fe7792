"""Prometheus counters of jobs, named as in the Kubeflow training operator."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob.controllers.conclusions import COMPLETE, FAILED
from elasticjob.controllers.frameworks import name_of
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.kinds import Key

LABELS: Final = ("job_namespace", "framework")


class Counters:
    """`training_operator_jobs_{created,successful,failed,…}_total` by namespace and framework."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"training_operator_jobs_{name}", text, LABELS, registry=registry)

        self._created = counter("created", "Jobs that were accepted.")
        self._successful = counter("successful", "Jobs that succeeded.")
        self._failed = counter("failed", "Jobs that failed.")
        self._restarted = counter("restarted", "Nodes of jobs that were replaced after a failure or a kill.")
        self._deleted = counter("deleted", "Jobs that were deleted.")
        self._known: dict[Key, tuple[str, str]] = {}

    def saw(self, job: ElasticJob, new: ElasticJobStatus) -> None:
        """Count what a written status says beyond the one before."""
        labels = (job.metadata.namespace, name_of(job))
        self._known[job.key] = labels
        if job.status.phase is None:
            self._created.labels(*labels).inc()
        for counter, type_ in ((self._successful, COMPLETE), (self._failed, FAILED)):
            if is_true(new.conditions, type_) and not is_true(job.status.conditions, type_):
                counter.labels(*labels).inc()
        self._restarted.labels(*labels).inc(max(0, (new.restarts or 0) - (job.status.restarts or 0)))

    def forget(self, key: Key) -> None:
        """Count a job that is gone, once."""
        if labels := self._known.pop(key, None):
            self._deleted.labels(*labels).inc()
