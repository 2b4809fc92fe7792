"""The observed jobs and their objects, and checks of them; violations are returned as sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.parts.names import MASTER
from elasticjob.controllers.parts.owners import controller_uid
from elasticjob.kube.cache.wire import Meta
from elasticjob.kube.objects.conditions import is_true
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Pod,
)

OWNED: tuple[Kind[Any], ...] = (
    JOBRESOURCE,
    SCALEPLAN,
    POD,
    SERVICE,
    SECRET,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    NETWORK_POLICY,
    CONFIG_MAP,
)
"""All kinds of objects that the operator creates for a job."""
KINDS: tuple[Kind[Any], ...] = (ELASTICJOB, *OWNED)
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class World:
    """A snapshot: the jobs, their pods, and the metadata of all owned objects."""

    jobs: Mapping[str, ElasticJob]
    pods: Iterable[Pod]
    owned: Mapping[str, Iterable[Meta]]
    """By the kind's name."""

    def pods_of(self) -> Mapping[str, list[Pod]]:
        """The pods by job."""
        found: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            found[pod.metadata.labels.get(LABEL_JOB, "")].append(pod)
        return found


def unfinished(world: World) -> Iterator[str]:
    """A sentence for each job that does not match its spec."""
    pods = world.pods_of()
    for name, job in world.jobs.items():
        if why := _difference(job, pods.get(name, [])):
            yield f"{name} {why}"


def leftovers(world: World) -> Iterator[str]:
    """A sentence for each object whose job or owner is gone."""
    alive = {job.metadata.uid for job in world.jobs.values()}
    alive |= {meta.uid for meta in world.owned[JOBRESOURCE.name]}
    for kind, metas in world.owned.items():
        for meta in metas:
            owners = [owner.uid for owner in meta.owner_references or ()]
            if LABEL_JOB in (meta.labels or {}) and not alive.intersection(owners):
                yield f"{kind} {meta.name} has lost its owner"


def twins(world: World) -> Iterator[str]:
    """A sentence for each place in a job with two live pods, which must never happen."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for pod in world.pods:
        if is_alive(pod):
            labels = pod.metadata.labels
            place = (labels.get(each, "") for each in (LABEL_JOB, LABEL_ROLE, LABEL_INDEX))
            places[controller_uid(pod.metadata), *place].append(pod.metadata.name)
    for names in places.values():
        if len(names) > 1:
            yield f"one place is held by {' and '.join(sorted(names))}"


def is_alive(pod: Pod) -> bool:
    """Whether it runs or will, and is not being deleted."""
    return pod.status.phase not in OVER and pod.metadata.deletion_timestamp is None


def role_of(pod: Pod) -> str:
    return pod.metadata.labels.get(LABEL_ROLE, "")


def is_over(job: ElasticJob) -> bool:
    return is_true(job.status.conditions, "Complete") or is_true(job.status.conditions, "Failed")


def _difference(job: ElasticJob, pods: list[Pod]) -> str:
    running = [pod for pod in pods if pod.status.phase == "Running" or is_alive(pod)]
    if job.metadata.deletion_timestamp:
        return "is still being deleted"
    if is_over(job) or job.spec.suspend:
        expected = "Suspended" if not is_over(job) else "Succeeded"
        return f"is {job.status.phase} and has {len(running)} pods" * (
            bool(running) or job.status.phase != expected
        )
    wanted = job.spec.replica_specs[WORKER].replicas or 0
    have = sorted(pod.metadata.labels.get(LABEL_INDEX, "") for pod in running if role_of(pod) == WORKER)
    masters = sum(role_of(pod) == MASTER for pod in running)
    if have != [str(index) for index in range(wanted)] or masters != 1:
        return f"has {masters} masters and the workers {have} of {wanted}"
    if any(pod.status.phase != "Running" or pod.metadata.deletion_timestamp for pod in running):
        return "has pods that do not run yet, or not any more"
    if job.status.phase != "Running" or job.status.workers != f"{wanted}/{wanted}":
        return f"says {job.status.phase} {job.status.workers} and runs {wanted}"
    if job.status.observed_generation != job.metadata.generation:
        return "does not say that its newest spec was seen"
    return ""
