"""The pods of a job by role, and the replicas that a response lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.names import Role
from elasticjob.controllers.parts.owners import is_part
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import Pod

STARTING: Final = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True)
class Replicas:
    """An answer's data: the URLs of collectors and of logic learners."""

    namespace: str
    coordinator: str
    collectors: tuple[str, ...] | None
    learners: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """Return it as it is sent."""
        return {
            "namespace": self.namespace,
            "coordinator": self.coordinator,
            "collectors": None if self.collectors is None else list(self.collectors),
            "learners": list(self.learners),
        }


@dataclass(frozen=True)
class Pods:
    """The pods of a job, oldest first; those that are being deleted are left out."""

    job: DIJob
    pods: tuple[Pod, ...]

    @classmethod
    def of(cls, job: DIJob, found: Iterable[Pod]) -> Pods:
        """Return the pods of a job, out of pods among which there may be others."""
        ours = (
            pod for pod in found if is_part(pod.metadata, job) and pod.metadata.deletion_timestamp is None
        )
        return cls(job, tuple(sorted(ours, key=_age)))

    @cached_property
    def collectors(self) -> tuple[Pod, ...]:
        """All collectors."""
        return tuple(pod for pod in self.pods if pods.role_of(pod) is Role.COLLECTOR)

    @cached_property
    def learners(self) -> tuple[Pod, ...]:
        """The logic learners: plain learners, then aggregators."""
        return tuple(
            pod for role in (Role.LEARNER, Role.AGGREGATOR) for pod in self.pods if pods.role_of(pod) is role
        )

    @property
    def coordinator(self) -> str:
        """The name of the coordinator."""
        return names.coordinator(self.job.metadata.name)

    def members(self, aggregator: Pod) -> tuple[Pod, ...]:
        """Return the ddp pods of an aggregator, in the order of their ranks."""
        uid = aggregator.metadata.uid
        found = (pod for pod in self.pods if any(owner.uid == uid for owner in pod.metadata.owner_references))
        return tuple(sorted(found, key=lambda pod: (pods.start_of(pod), _age(pod))))

    def by_name(self, name: str) -> Pod | None:
        """Return a pod of the job."""
        return next((pod for pod in self.pods if pod.metadata.name == name), None)

    def replacement(self, name: str) -> Pod | None:
        """Return the pod that was made in the place of the one of this name."""
        return next((pod for pod in self.pods if pod.metadata.annotations.get(names.REPLACES) == name), None)

    def replicas(self) -> Replicas:
        """Return what the coordinator is told of its job."""
        return answer(self.job, self.coordinator, self.collectors, self.learners)

    def processes(self, aggregator: Pod) -> Replicas:
        """Return what an aggregator is told of its learners: a URL for each process."""
        urls = tuple(url for pod in self.members(aggregator) for url in pods.process_urls(pod))
        return Replicas(self.job.metadata.namespace, aggregator.metadata.name, None, urls)


def answer(job: DIJob, caller: str, collectors: Sequence[Pod], learners: Sequence[Pod]) -> Replicas:
    """Return the URLs of pods, as data of an answer to `caller`."""
    urls = [tuple(pods.url_of(pod) for pod in each) for each in (collectors, learners)]
    return Replicas(job.metadata.namespace, caller, *urls)


def owner_of(pod: Pod) -> tuple[str, str] | None:
    """Return name and uid of the DIJob that a pod belongs to."""
    owners = (
        (owner.name, owner.uid)
        for owner in pod.metadata.owner_references
        if owner.controller and owner.kind == DIJOB.name and owner.api_version == DIJOB.api_version
    )
    return next(owners, None)


def has_no_token(cache: Cache[Pod], job: Key, uid: str) -> bool:
    """Whether the coordinator of a job was made without a token: before the installation had any. Such a job
    goes on without; nobody else can make one for it.
    """
    pod = cache.get((job.namespace, names.coordinator(job.name)))
    return pod is not None and owner_of(pod) == (job.name, uid) and not pods.has_token(pod)


def is_starting(pod: Pod) -> bool:
    """Whether a pod is on its way: to replace it would only lose time."""
    if pod.status.phase not in ("", "Pending"):
        return False
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = [status.state.waiting.reason for status in statuses if status.state.waiting is not None]
    return all(reason in STARTING for reason in waits if reason)


def going_first(found: Iterable[Pod]) -> list[Pod]:
    """Return replicas in the order in which they are deleted: pending, then ended, then the newest."""

    def rank(pod: Pod) -> int:
        match pod.status.phase:
            case "" | "Pending":
                return 0
            case "Failed" | "Succeeded":
                return 1
            case _:
                return 2

    return sorted(sorted(found, key=_age, reverse=True), key=rank)


def _age(pod: Pod) -> tuple[str, str]:
    at = pod.metadata.creation_timestamp
    return (at.isoformat() if at else "", pod.metadata.name)
