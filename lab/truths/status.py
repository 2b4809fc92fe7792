"""Jobs are as their specs say, nothing is left of those that are gone, and the operator leaks nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Pod,
)
from lab.jobs.gauges import Sample, growth
from lab.story import Truth

OWNED: tuple[Kind[Any], ...] = (
    *(JOBRESOURCE, SCALEPLAN, POD, SERVICE, SECRET, SERVICE_ACCOUNT, ROLE, ROLE_BINDING),
    *(NETWORK_POLICY, CONFIG_MAP, POD_DISRUPTION_BUDGET),
)
"""All kinds of objects that the operator creates for a job."""
KINDS: tuple[Kind[Any], ...] = (ELASTICJOB, *OWNED)
OVER = ("Succeeded", "Failed")
PLACE = (LABEL_JOB, LABEL_ROLE, LABEL_INDEX)


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


def places(world: World) -> Iterator[tuple[str, str]]:
    """The place of each live pod in a job, and its name."""
    for about in (pod.metadata for pod in world.pods if is_alive(pod)):
        yield "/".join((controller_uid(about), *(about.labels.get(each, "") for each in PLACE))), about.name


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


CONVERGED_WITHIN = 5.0
GROWN_BY = 0.1
"""The share by which memory may be larger in the last third than in the middle one."""


def leaks(before: Sample, after: Sample) -> list[str]:
    """Return the resources held after the last job that were not held before the first."""
    pairs = {
        "tasks": (before.tasks - before.inbound, after.tasks - after.inbound),
        "open files": (before.files - before.inbound, after.files - after.inbound),
        "connections": (before.connections, after.connections),
        "threads": (before.threads, after.threads),
    }
    slack = {"threads": 32}  # the executor's, which are made when first needed and kept
    return [
        f"{after_} {name} at the end, {before_} at the start"
        for name, (before_, after_) in pairs.items()
        if after_ > before_ + slack.get(name, 0)
    ]


def broken(metrics: Mapping[str, float]) -> list[str]:
    """Return which runs broke as no fault excuses."""
    panics = metrics.get("controller_runtime_reconcile_panics_total", 0)
    terminal = metrics.get("controller_runtime_terminal_reconcile_errors_total", 0)
    wrong = [f"{panics:.0f} runs broke unexpectedly"] if panics else []
    return wrong + ([f"{terminal:.0f} runs gave up"] if terminal else [])


def slow(seconds: float) -> list[str]:
    """Return a sentence if it took long until all was as specified."""
    return [f"it took {seconds:.1f} s until all was as specified"] if seconds > CONVERGED_WITHIN else []


def grown(samples: Sequence[Sample]) -> list[str]:
    """Return a sentence if memory grew while jobs came and went."""
    middle, last = growth(samples)
    grew = last > middle * (1 + GROWN_BY)
    return [f"memory grew from {middle:.0f} to {last:.0f} MiB in the last third"] if grew else []


TRUTHS = (
    Truth("as-specified", lambda crowd: crowd.late),
    Truth("soon", lambda crowd: slow(crowd.converged_in)),
    Truth("no-leaks", lambda crowd: [*leaks(*crowd.empty), *broken(crowd.metrics)]),
    Truth("no-growth", lambda crowd: grown(crowd.stormy)),
)
