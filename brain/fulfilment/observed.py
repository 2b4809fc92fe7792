"""From the objects of a cluster to what planners read: machines, demands, planned jobs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Final, Protocol

from elasticjob.api.resources import Resources, pod_requests
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, OptimizeMode, Phase
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.order import by_age
from elasticjob.api.v1alpha1.placing import is_silent, requests, takes, with_resource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.brain.fulfilment.state import CPU, PODS, Amounts, Cluster, Demand, Job, Machine
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import Node, Pod

ENDED: Final = ("Succeeded", "Failed")
OVER: Final = (None, Phase.SUCCEEDED, Phase.FAILED, Phase.SUSPENDED)
UNSCHEDULABLE: Final = "Unschedulable"
SHORT: Final = "Insufficient"
VOLUME: Final = "volume"
"""In the scheduler's message: a resource is short; a claim or a volume is waited for."""
MOST_DIGITS: Final = 9
WITHDRAWS: Final = "withdraws"
"""In the reason of a plan that gives up instances which found no machine."""


@dataclass(frozen=True)
class Objects:
    """What the caches have; pods are all of the cluster, those of jobs and all others."""

    machines: Sequence[Node]
    pods: Sequence[Pod]
    jobs: Sequence[ElasticJob]
    resources: Mapping[Key, JobResource]
    plans: Sequence[ScalePlan]
    heard: Mapping[str, datetime] = field(default_factory=dict)
    """When each plan was first seen, by uid: the API server may have another clock."""


class Passes(Protocol):
    """Has the error of an object cost that object alone, which is not due again for a while."""

    def is_due(self, key: str) -> bool: ...

    def over(self, key: str) -> AbstractContextManager[None, bool]: ...


def observe(objects: Objects, passes: Passes) -> tuple[Cluster, tuple[Job, ...]]:
    """Return the cluster, and its jobs in cluster mode whose workers have a range."""
    open_ = [node for node in objects.machines if not node.spec.unschedulable and not is_silent(node)]
    needs = _needs(objects.pods, passes)
    alive = [pod for pod in objects.pods if pod.metadata.uid in needs]
    workers, plans = defaultdict[str, list[Pod]](list), defaultdict[Key, list[ScalePlan]](list)
    for pod in alive:
        if pod.metadata.labels.get(LABEL_ROLE) == WORKER:
            workers[_controller(pod)].append(pod)
    for plan in objects.plans:
        plans[Key(plan.metadata.namespace, plan.spec.owner_job)].append(plan)
    planned, theirs = list[Job](), set[str]()
    for job in (each for each in objects.jobs if passes.is_due(str(each.key))):
        with passes.over(str(job.key)):
            resource = objects.resources.get(job.key)
            own = workers[resource.metadata.uid] if resource else []
            found = job_of(job, resource, own, plans[job.key], open_, objects.heard) if resource else None
            if found:
                planned.append(found)
                theirs |= {pod.metadata.uid for pod in own}
    others = [pod for pod in alive if pod.metadata.uid not in theirs and waits_for_room(pod)]
    demands = tuple(demand_of(pod, needs[pod.metadata.uid], open_) for pod in others)
    return Cluster(_machines(open_, alive, needs, passes), demands), tuple(planned)


def _needs(pods: Iterable[Pod], passes: Passes) -> Mapping[str, Amounts]:
    """Return what each pod that has not ended takes, by uid; without those whose amounts cannot be read."""
    found = dict[str, Amounts]()
    for pod in pods:
        key = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
        if pod.status.phase not in ENDED and passes.is_due(key):
            with passes.over(key):
                found[pod.metadata.uid] = one_pod(requests(pod))
    return found


def waits_for_room(pod: Pod) -> bool:
    """Whether a scheduler has looked for a machine for a pod and found none with room.

    Pods behind a gate wait for what opens it: Kueue may never do that. A scheduler that does not run has not
    looked. To make room would not help a pod that waits for a volume.
    """
    looked = (each for each in pod.status.conditions if each.type == "PodScheduled")
    found = next((each for each in looked if (each.status, each.reason) == ("False", UNSCHEDULABLE)), None)
    waits = not (pod.spec.node_name or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp)
    return waits and found is not None and (SHORT in found.message or VOLUME not in found.message.lower())


def _machines(
    nodes: Iterable[Node], pods: Iterable[Pod], needs: Mapping[str, Amounts], passes: Passes
) -> tuple[Machine, ...]:
    """Return the machines with what is idle, and what is once terminating pods have ended."""
    held, going = defaultdict[str, list[Amounts]](list), defaultdict[str, list[Amounts]](list)
    for pod in pods:
        if pod.spec.node_name:
            held[pod.spec.node_name].append(needs[pod.metadata.uid])
            if pod.metadata.deletion_timestamp:
                going[pod.spec.node_name].append(needs[pod.metadata.uid])
    found = []
    for node in nodes:
        name = node.metadata.name
        if passes.is_due(f"node {name}"):
            with passes.over(f"node {name}"):
                total = amounts(Resources.parse({n: str(a) for n, a in node.status.allocatable.items()}))
                idle = _less(total, held[name])
                freed = {n: idle[n] + sum(each.get(n, 0) for each in going[name]) for n in total}
                found.append(Machine(name, total, idle, freed))
    return tuple(found)


def job_of(
    job: ElasticJob,
    resource: JobResource,
    pods: Sequence[Pod],
    plans: Sequence[ScalePlan],
    machines: Iterable[Node],
    heard: Mapping[str, datetime],
) -> Job | None:
    """Return a job as planners read it; None if its workers are not theirs to plan."""
    spec = job.spec.roles.get(WORKER)
    placed = resource.spec.replica_resource_specs.get(WORKER)
    if spec is None or placed is None or placed.replicas is None or not _is_ours(job):
        return None
    range_ = job.spec.range_of(WORKER)
    least, most = range_.smallest, range_.largest
    if not spec.auto_scale or most is None or least >= most:
        return None
    newest = by_age(plans)
    stay = sorted((pod for pod in pods if not pod.metadata.deletion_timestamp), key=_index)
    now = _target(newest, placed.replicas)
    pod = with_resource(spec, {name: str(amount) for name, amount in placed.resource.items()})
    begun = job.metadata.creation_timestamp
    assert begun is not None, "an object of a server has a time of creation"
    return Job(
        key=str(job.key),
        least=least,
        most=most,
        now=now,
        amount=one_pod(pod_requests(pod)),
        machines=tuple(each.spec.node_name or None for each in stay[:now]) + (None,) * (now - len(stay)),
        submitted=begun,
        step=range_.unit,
        beside=range_.beside,
        permitted=machines_for(pod, machines),
        priority=max((each.spec.priority or 0 for each in pods), default=0),
        changed=_since(newest[-1], heard) if newest else None,
        withdrawn=_withdrawn(newest),
        stays="a pod is terminating" if len(stay) < len(pods) else "",
        quota=resource.status.quota.get(WORKER),
    )


def machines_for(pod: Mapping[str, object], machines: Iterable[Node]) -> frozenset[str] | None:
    """Return the machines whose taints and labels let a pod in; None for all."""
    machines = list(machines)
    found = frozenset(node.metadata.name for node in machines if takes(node, dict(pod)))
    return None if len(found) == len(machines) else found


def demand_of(pod: Pod, needs: Amounts, machines: Iterable[Node]) -> Demand:
    """Return a pending pod that is not ours to plan."""
    spec = {
        "tolerations": pod.spec.tolerations,
        "nodeSelector": pod.spec.node_selector,
        "affinity": pod.spec.affinity,
    }
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    begun = pod.metadata.creation_timestamp
    assert begun is not None, "an object of a server has a time of creation"
    return Demand(key, needs, begun, machines_for(spec, machines), pod.spec.priority or 0)


def amounts(resources: Resources) -> dict[str, int]:
    """Return amounts as integers, rounded up: milli-cores, bytes, whole devices."""
    return {name: ceil(amount.value * (1000 if name == CPU else 1)) for name, amount in resources.items()}


def one_pod(resources: Resources) -> dict[str, int]:
    """Return what a pod takes: its requests, and one of a machine's pod slots."""
    return {**amounts(resources), PODS: 1}


def _is_ours(job: ElasticJob) -> bool:
    runs = job.status.phase not in OVER and not job.spec.suspend and not job.metadata.deletion_timestamp
    return runs and job.spec.optimize_mode is OptimizeMode.CLUSTER and not job.spec.managed_by


def _target(plans: Sequence[ScalePlan], placed: int) -> int:
    """The size that the newest plan which is not carried out yet asks for; else the present one."""
    for plan in reversed(plans):
        size = plan.spec.replica_resource_specs.get(WORKER)
        if not (plan.status.phase and plan.status.phase.is_terminal) and size and size.replicas is not None:
            return size.replicas
    return placed


def _withdrawn(plans: Sequence[ScalePlan]) -> int:
    """How many growths in a row were withdrawn, up to now."""
    count = 0
    for plan in reversed(plans):
        if WITHDRAWS in plan.spec.reason:
            count += 1
        elif "grows" not in plan.spec.reason:
            break
    return count


def _since(plan: ScalePlan, heard: Mapping[str, datetime]) -> datetime | None:
    return heard.get(plan.metadata.uid, plan.metadata.creation_timestamp)


def _controller(pod: Pod) -> str:
    """Return the uid of what made a pod: its labels may be anybody's."""
    return next((each.uid for each in pod.metadata.owner_references if each.controller), "")


def _index(pod: Pod) -> int:
    text = pod.metadata.labels.get(LABEL_INDEX, "")
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else 0


def _less(total: Amounts, taken: Iterable[Amounts]) -> dict[str, int]:
    left = dict(total)
    for each in taken:
        for name, amount in each.items():
            if name in left:
                left[name] = max(0, left[name] - amount)
    return left
