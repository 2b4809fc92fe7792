"""Which pods a call makes: a logic learner is one plain learner, or an aggregator with its ddp learners.

Pure but for the letters of names, which are drawn by an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from elasticjob.api.diengine import gpus, names
from elasticjob.api.diengine.gpus import Machine, TooManyPods, place, split
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import GPU, Place
from elasticjob.api.resources import Amount, MalformedQuantity
from elasticjob.api.v1alpha1.placing import is_silent, requests, takes
from elasticjob.controllers.diserver.asked import Amounts
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Node, Pod

ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Member:
    """One ddp pod of a logic learner."""

    name: str
    place: Place
    resources: Mapping[str, str]


@dataclass(frozen=True)
class Order:
    """One pod to make, and for an aggregator its ddp pods."""

    role: Role
    name: str
    resources: Mapping[str, str] = field(default_factory=dict)
    members: tuple[Member, ...] = ()

    @property
    def size(self) -> int:
        """How many pods it makes."""
        return 1 + len(self.members)


@dataclass(frozen=True)
class Creation:
    """All that a call makes; `missing` says which GPUs the cluster lacks for it now, or ""."""

    orders: tuple[Order, ...]
    missing: str = ""

    @property
    def size(self) -> int:
        """How many pods are made."""
        return sum(order.size for order in self.orders)


@dataclass(frozen=True)
class Draw:
    """Names of a job's pods; `letters` returns five small letters or digits, never the same."""

    job: str
    letters: Callable[[], str]

    def name(self, role: Role) -> str:
        """Return a name that no pod has, as far as chance can tell."""
        return names.replica(self.job, role, self.letters())


def collectors(amounts: Amounts, draw: Draw) -> Creation:
    """Return the collectors that are asked for."""
    made = (
        Order(Role.COLLECTOR, draw.name(Role.COLLECTOR), dict(amounts.resources))
        for _ in range(amounts.replicas)
    )
    return Creation(tuple(made))


def learners(
    amounts: Amounts, machines: Iterable[Machine], draw: Draw, *, most: int, local_ports: bool = False
) -> Creation:
    """Return the logic learners that are asked for, each placed beside those before it.

    Raises TooManyPods for more than `most` pods, aggregators counted, before it goes beyond them.
    """
    resources = dict(amounts.resources)
    if amounts.gpus <= 1:
        made = (Order(Role.LEARNER, draw.name(Role.LEARNER), resources) for _ in range(amounts.replicas))
        return Creation(tuple(made))
    left, found, missing, size = list(machines), list[Order](), "", 0
    for _ in range(amounts.replicas):
        try:
            chosen = split(amounts.gpus, left, most - size - 1)
        except TooManyPods as error:
            raise TooManyPods(size + 1 + error.count) from None
        size += 1 + len(chosen.pods)
        left = place(chosen.pods, left) or left
        missing = missing or chosen.missing
        members = _members(chosen.pods, resources, draw, local_ports=local_ports)
        found.append(Order(Role.AGGREGATOR, draw.name(Role.AGGREGATOR), {}, members))
    return Creation(tuple(found), missing)


def machines_for(pod: Manifest, nodes: Iterable[Node], bound: Iterable[Pod]) -> list[gpus.Machine]:
    """Return the machines of a cluster with the GPUs that are free for pods like `pod`."""
    used: dict[str, int] = {}
    for each in bound:
        if each.spec.node_name and each.status.phase not in ENDED:
            used[each.spec.node_name] = used.get(each.spec.node_name, 0) + _gpus(each)
    found = []
    for node in nodes:
        try:
            total = int(Amount.parse(node.status.allocatable.get(GPU, 0)).value)
        except MalformedQuantity:
            continue  # a machine of which nothing is known
        open_ = not (node.spec.unschedulable or is_silent(node)) and takes(node, pod)
        free = max(0, total - used.get(node.metadata.name, 0)) if open_ else 0
        found.append(Machine(total, free))
    return found


def _gpus(pod: Pod) -> int:
    """The GPUs of a pod; those of a pod of another tenant that cannot be read are not its machine's loss."""
    try:
        asked = requests(pod)
    except MalformedQuantity:
        return 0
    return int(asked[GPU].value) if GPU in asked else 0


def _members(
    sizes: tuple[int, ...], resources: Mapping[str, str], draw: Draw, *, local_ports: bool
) -> tuple[Member, ...]:
    chosen = [draw.name(Role.DDP_LEARNER) for _ in sizes]
    found, start = [], 0
    for index, (name, size) in enumerate(zip(chosen, sizes, strict=True)):
        place = Place(sum(sizes), size, start, chosen[0] if index else "", local_ports)
        found.append(Member(name, place, {**resources, GPU: str(size)}))
        start += size
    return tuple(found)
