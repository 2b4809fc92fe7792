"""The kinds of jobs that a queue admits: a module each, and a row in KINDS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from elasticjob.api.diengine.dijob import DIJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.controllers.kueue.demand import QueueRequest
from elasticjob.controllers.kueue.kinds.dijob import DIJobs
from elasticjob.controllers.kueue.kinds.elasticjob import ElasticJobs, Template
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.passes.observe import Caches
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.controller.predicates import Predicate
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import Pod


class Jobs(Protocol):
    """A kind of jobs."""

    @property
    def kind(self) -> Kind[Any]: ...

    @property
    def sizes(self) -> tuple[Kind[Any], ...]:
        """The kinds of objects with a job's name, beside the job, that say how many nodes it wants."""

    def find(self, key: Key) -> CustomResource | None:
        """Return a job from memory."""

    def queue(self, job: Any) -> str:
        """Return the LocalQueue that a job names, "" for none."""

    def is_suspended(self, job: Any) -> bool:
        """Whether a job asks for nothing, since its user has suspended it."""

    def demand(self, job: Any, planned: JobResource | None = None) -> QueueRequest:
        """Return what a job asks of its queue, or would with another JobResource."""

    def selector(self, key: Key) -> str:
        """Return the label selector of a job's pods."""

    def lives(self, key: Key, pods: list[Pod] | None, now: datetime) -> tuple[Life, ...]:
        """Return all pods of a job: from memory, or as they were read from the server."""

    def job_of(self, pod: Pod) -> Iterable[Key]:
        """Return the job of a pod, as a key."""

    def matters(self) -> Predicate:
        """Return the predicate: a pod changed in a way that its quota depends on."""

    def labels(self, machine: str) -> Mapping[str, str]:
        """Return the labels of a machine, as far as it is known."""


@dataclass(frozen=True)
class Sources:
    """The caches and templates that kinds read."""

    caches: Caches
    dijobs: Cache[DIJob]
    master: Template
    """The spec of the pod of a job's master."""


KINDS: Final[tuple[Callable[[Sources], Jobs], ...]] = (
    lambda sources: ElasticJobs(sources.caches, sources.master),
    lambda sources: DIJobs(sources.dijobs, sources.caches.pods),
)
