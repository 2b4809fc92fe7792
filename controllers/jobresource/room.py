"""How much room the cluster has: how many more nodes of each role would find a machine now.

By what pods ask for, as the scheduler counts it: a machine has what it can allocate, without the requests of
all pods on it that have not ended. A pod that waits for a machine takes a place, too. Machines that take no
pods now, or whose labels and taints keep the role away, do not count. Spreading, affinity between pods and
quotas are not looked at: a node that was added and waits is given up again (sizing/rules/growth.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.resources import NOTHING, Amount, Resources, pod_requests, unit
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, OptimizeMode
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.placing import is_silent, requests, takes, with_resource
from elasticjob.controllers.passes.observe import Caches
from elasticjob.kube.objects.views import Node, Pod

EVERY: Final = timedelta(seconds=10)
"""Time between two looks at all pods of the cluster, while a job could grow."""
MOST: Final = 10_000
"""Where a pod asks for nothing, so that any number would fit."""
ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Machine:
    """A machine that takes pods, and what it has left."""

    node: Node
    left: Resources


@dataclass(frozen=True)
class Room:
    """More nodes of each role that would fit, and the most that one of them could get."""

    roles: Mapping[str, int] = field(default_factory=dict)
    machine: Resources = NOTHING
    quota: Mapping[str, int] = field(default_factory=dict)
    """The number of nodes of each role for which quota is idle, of a job in a queue."""


class Rooms:
    """The room for each job, from one look at the cluster for all of them."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches
        self._machines: tuple[Machine, ...] = ()
        self._waiting = 0
        self._looked: datetime | None = None

    def of(self, job: ElasticJob, resource: JobResource, now: datetime) -> Room:
        """Return the room for a job; what is known of the cluster is at most EVERY old."""
        if self._looked is None or now - self._looked >= EVERY:
            pods = [pod for pod in self._caches.pods.list() if pod.status.phase not in ENDED]
            self._machines = machines(self._caches.machines.list(), pods)
            self._waiting = sum(not pod.spec.node_name for pod in pods)
            self._looked = now
        return room(job, resource, self._machines, self._waiting)


def learns(job: ElasticJob, resource: JobResource) -> bool:
    """Whether an optimizer may let a role grow, so that the room is of interest."""
    if job.spec.optimize_mode is OptimizeMode.MANUAL or job.spec.suspend:
        return False
    sizes = resource.spec.replica_resource_specs
    for role, spec in job.spec.roles.items():
        now = sizes[role].replicas if role in sizes else None
        most = job.spec.range_of(role).largest
        if spec.auto_scale and spec.replicas is None and (now is None or most is None or now < most):
            return True
    return False


def machines(nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[Machine, ...]:
    """Return the machines that take pods, without what the pods on them ask for."""
    taken = dict[str, Resources]()
    for pod in pods:
        if name := pod.spec.node_name:
            taken[name] = taken.get(name, NOTHING) + requests(pod) + Resources({"pods": unit("pods")(1)})
    open_ = (node for node in nodes if not node.spec.unschedulable and not is_silent(node))
    return tuple(Machine(n, _left(n, taken.get(n.metadata.name, NOTHING))) for n in open_)


def room(job: ElasticJob, resource: JobResource, machines: Iterable[Machine], waiting: int) -> Room:
    """Return the room for a job on these machines; `waiting` pods find one first."""
    machines, found, largest = tuple(machines), dict[str, int](), NOTHING
    for role, spec in job.spec.roles.items():
        placed = resource.spec.replica_resource_specs.get(role)
        pod = with_resource(spec, {n: str(a) for n, a in placed.resource.items()} if placed else {})
        fitting = [machine for machine in machines if takes(machine.node, pod)]
        need = pod_requests(pod) + Resources({"pods": unit("pods")(1)})
        found[role] = max(0, sum(_count(machine.left, need) for machine in fitting) - waiting)
        for machine in fitting:
            largest = largest.most(machine.left)
    return Room(found, Resources({n: a for n, a in largest.items() if n in ("cpu", "memory")}))


def _left(node: Node, taken: Resources) -> Resources:
    have = Resources.parse({name: str(amount) for name, amount in node.status.allocatable.items()})
    return Resources({n: _less(n, amount, taken.get(n)) for n, amount in have.items()})


def _less(name: str, have: Amount, taken: Amount | None) -> Amount:
    return unit(name)(max(0, have.value - taken.value)) if taken else have


def _count(left: Resources, need: Resources) -> int:
    """How many pods fit; a resource that a machine does not have fits none."""
    counts = [int(left[n].value // a.value) if n in left else 0 for n, a in need.items() if a.value > 0]
    return min(counts, default=MOST)
