"""The quota of all queues: what is idle, and what a Workload would get of it. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import Final

from elasticjob.api.resources import Amount, MalformedQuantity, Resources, pod_requests, unit
from elasticjob.api.v1alpha1.placing import takes
from elasticjob.controllers.kueue.cohorts import Amounts, Cell, Limits, Member, Number, Tree
from elasticjob.controllers.kueue.workload import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    PodSet,
    ResourceFlavor,
    ResourceFlavorSpec,
    ResourceGroup,
    Workload,
)
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Node, NodeSpec, ObjectMeta, Quantity

PODS: Final = "pods"
STRICT: Final = "StrictFIFO"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PLAIN: Final = ResourceFlavorSpec()


@dataclass(frozen=True)
class Queue(Member):
    """A ClusterQueue, and its flavours by resource, in groups, in the order of preference."""

    groups: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = ()
    stopped: bool = False
    strict: bool = False
    """Whether the first one that waits, and cannot be admitted, keeps all others waiting (StrictFIFO)."""
    generation: int = 0

    @property
    def flavors(self) -> Iterable[str]:
        """All flavours."""
        return (flavor for _, flavors in self.groups for flavor in flavors)


@dataclass(frozen=True)
class Market:
    """All queues and what they use."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    tree: Tree = field(default_factory=Tree)
    used: Mapping[str, Amounts] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset({PODS})
    """Resources that need no quota where a queue has none of them."""
    flavors: Mapping[str, ResourceFlavorSpec] = field(default_factory=dict)

    def available(self, queue: str, cell: Cell) -> Number:
        """Return how much more of a flavour of a resource a queue can get."""
        return self.tree.available(self.queues[queue], cell, self.used)

    def fitting(
        self, queue: str, pod_sets: Iterable[PodSet], keep: Mapping[str, str] | None = None
    ) -> Amounts | None:
        """Return what pods would be given by a queue now, set after set; None where one does not fit.

        `keep`: the flavours of resources that they are to have. Kueue chooses; with others they do not fit.
        """
        left, found, kept = self, dict[Cell, Number](), keep or {}
        for each in pod_sets:
            usable = self._usable(queue, each) if self.flavors else None
            amounts = left.assignment(queue, needs((each,)), usable)
            if amounts is None or any(kept.get(name, flavor) != flavor for flavor, name in amounts):
                return None
            left = left.with_use(queue, amounts)
            found |= {cell: found.get(cell, 0) + value for cell, value in amounts.items()}
        return found

    def labels(self, flavors: Iterable[str]) -> dict[str, str]:
        """Return the labels of the machines of flavours."""
        known = (self.flavors.get(name, _PLAIN).node_labels for name in flavors)
        return {name: value for labels in known for name, value in labels.items()}

    def _usable(self, queue: str, pods: PodSet) -> frozenset[str]:
        own = self.queues.get(queue)
        known = {name: self.flavors.get(name, _PLAIN) for name in own.flavors} if own else {}
        implied = not pods.wants_topology and all(each.topology_name for each in known.values())
        return frozenset(n for n, each in known.items() if _takes(each, pods, topology=not implied))

    def assignment(
        self, queue: str, needs: Resources, usable: Container[str] | None = None
    ) -> Amounts | None:
        """Return what pods would be given by a queue now, of these flavours; None where they do not fit.

        The resources of a group come from one flavour, the first that has all of them.
        """
        own = self.queues.get(queue)
        if own is None or own.stopped or self.tree.root(own) is None:
            return None
        found: dict[Cell, Number] = {}
        left = {name: amount.value for name, amount in needs.items() if amount.value}
        for covered, flavors in own.groups:
            wanted = {name: value for name, value in left.items() if name in covered}
            for name in wanted:
                del left[name]
            if not wanted:
                continue
            fitting = (
                flavor
                for flavor in flavors
                if (usable is None or flavor in usable)
                and all(
                    (flavor, name) in own.limits and self.available(queue, (flavor, name)) >= value
                    for name, value in wanted.items()
                )
            )
            flavor = next(fitting, None)
            if flavor is None:
                return None
            found |= {(flavor, name): value for name, value in wanted.items()}
        return None if left.keys() - self.ignored else found

    def with_use(self, queue: str, amounts: Amounts, sign: int = 1) -> Market:
        """Return the market in which a queue uses so much more, or less."""
        before = self.used.get(queue, {})
        now = {**before, **{cell: before.get(cell, 0) + sign * value for cell, value in amounts.items()}}
        return replace(self, used={**self.used, queue: now})

    def same_cohort(self, one: str, other: str) -> bool:
        """Whether what one queue gives back may be used by the other."""
        if one == other:
            return True
        found, theirs = self.queues.get(one), self.queues.get(other)
        root = self.tree.root(found) if found else ""
        return bool(theirs and root and root == self.tree.root(theirs))


def market(
    queues: Iterable[ClusterQueue],
    workloads: Iterable[Workload],
    cohorts: Iterable[Cohort] = (),
    flavors: Iterable[ResourceFlavor] = (),
) -> Market:
    """Return the queues and what the Workloads that hold quota use of them."""
    known = {each.metadata.name: _queue(each) for each in queues}
    tree = Tree(known, {each.metadata.name: _cohort(each) for each in cohorts})
    found = Market(known, tree, flavors={each.metadata.name: each.spec for each in flavors})
    used: dict[str, dict[Cell, Number]] = {}
    ignored = {PODS}
    for workload in workloads:
        admission = workload.status.admission
        if not workload.has_quota or admission is None:
            continue
        mine = used.setdefault(admission.cluster_queue, {})
        for cell, value in usage(workload).items():
            mine[cell] = mine.get(cell, 0) + value
        if queue := found.queues.get(admission.cluster_queue):
            # Kueue's settings may leave resources out (excludeResourcePrefixes): those it admitted so
            ignored |= {*needs(workload.spec.pod_sets)}.difference(*(covered for covered, _ in queue.groups))
    return replace(found, used=used, ignored=frozenset(ignored))


def usage(workload: Workload) -> dict[Cell, Number]:
    """Return what a Workload that holds quota uses."""
    found: dict[Cell, Number] = {}
    admission = workload.status.admission
    done = {each.name: each.count for each in workload.status.reclaimable_pods}
    for given in admission.pod_set_assignments if admission else ():
        count = workload.count(given.name)
        held = count - min(done.get(given.name, 0), count)  # its count may have been lowered since
        left = Fraction(min(held, given.count), given.count) if given.count else 1
        for name, amount in given.resource_usage.items():
            if name in given.flavors:
                cell = (given.flavors[name], name)
                found[cell] = found.get(cell, 0) + _number(amount) * left
    return found


def needs(pod_sets: Iterable[PodSet]) -> Resources:
    """Return what the pods of a Workload ask for together."""
    found = Resources({})
    for each in pod_sets:
        try:
            one = pod_requests(each.template.get("spec") or {})
        except MalformedQuantity:  # another system's object: Kueue says what is wrong with it
            continue
        found = found + one * each.count + Resources({PODS: unit(PODS)(each.count)})
    return found


def cluster_queue_of(workload: Workload, local: Mapping[tuple[str, str], LocalQueue]) -> str:
    """Return the ClusterQueue in which a Workload holds quota or waits; "" if there is none."""
    if workload.status.admission is not None:
        return workload.status.admission.cluster_queue
    queue = local.get((workload.metadata.namespace, workload.spec.queue_name))
    return queue.spec.cluster_queue if queue and queue.spec.stop_policy == "None" else ""


def _queue(found: ClusterQueue) -> Queue:
    spec, limits = found.spec, _limits(found.spec.resource_groups)
    groups = tuple(
        (frozenset(each.covered_resources), tuple(flavor.name for flavor in each.flavors))
        for each in spec.resource_groups
    )
    return Queue(
        found.metadata.name,
        spec.cohort_name,
        limits,
        groups,
        stopped=spec.stop_policy != "None",
        strict=spec.queueing_strategy == STRICT,
        generation=found.metadata.generation or 0,
    )


def _takes(flavor: ResourceFlavorSpec, pods: PodSet, *, topology: bool) -> bool:
    """Whether pods may have a flavour, as Kueue decides it: a selector of labels that it has not is met."""
    if topology and pods.wants_topology != bool(flavor.topology_name):
        return False
    spec: Manifest = pods.template.get("spec") or {}
    affinity: Manifest = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(REQUIRED) or {}
    terms = [
        {
            "matchExpressions": [
                e for e in term.get("matchExpressions") or () if e.get("key") in flavor.node_labels
            ]
        }
        for term in required.get("nodeSelectorTerms") or ()
    ]
    if not all(each["matchExpressions"] for each in terms):  # an alternative that any flavour meets
        terms = []
    selector = (spec.get("nodeSelector") or {}).items()
    asked = {
        "tolerations": [*(spec.get("tolerations") or ()), *flavor.tolerations],
        "nodeSelector": {name: value for name, value in selector if name in flavor.node_labels},
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
    }
    machine = Node(metadata=ObjectMeta(labels=flavor.node_labels), spec=NodeSpec(taints=flavor.node_taints))
    return takes(machine, asked)


def _cohort(found: Cohort) -> Member:
    return Member(found.metadata.name, found.spec.parent_name, _limits(found.spec.resource_groups))


def _limits(groups: Iterable[ResourceGroup]) -> Mapping[Cell, Limits]:
    return {
        (flavor.name, each.name): Limits(
            _number(each.nominal_quota),
            inf if each.borrowing_limit is None else _number(each.borrowing_limit),
            inf if each.lending_limit is None else _number(each.lending_limit),
        )
        for group in groups
        for flavor in group.flavors
        for each in flavor.resources
    }


def _number(amount: Quantity) -> Number:
    """Return an amount of another system's object; Kueue says what is wrong with one that is none."""
    try:
        return Amount.parse(amount).value
    except MalformedQuantity:
        return 0
