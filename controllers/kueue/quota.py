"""The quota of a cohort: what is idle, and what a Workload would get of it. Pure.

For a flavour of a resource, as Kueue counts it in a cohort without parents:

    guaranteed = nominal - min(nominal, lendingLimit)         never lent
    pool       = sum of what all members lend - what they use beyond their guaranteed part
    available  = what is left of the guaranteed part + pool   at most nominal + borrowingLimit - usage

Quotas of Cohort objects, and of their parents, are not counted: less looks idle than is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import Final

from elasticjob.api.resources import Amount, MalformedQuantity, Resources, pod_requests, unit
from elasticjob.controllers.kueue.workload import ClusterQueue, LocalQueue, PodSet, Workload
from elasticjob.kube.objects.views import Quantity

PODS: Final = "pods"
Number = Fraction | int | float
Cell = tuple[str, str]
"""A flavour and a resource."""
Amounts = Mapping[Cell, Number]


@dataclass(frozen=True)
class Limits:
    """The quota that a queue has of a flavour of a resource."""

    nominal: Number
    borrowing: Number = inf
    lending: Number = inf

    @property
    def lent(self) -> Number:
        """What others of the cohort may use."""
        return min(self.nominal, self.lending)


@dataclass(frozen=True)
class Queue:
    """A ClusterQueue: its cohort, and its flavours by resource, in groups, in the order of preference."""

    name: str
    cohort: str
    groups: tuple[tuple[frozenset[str], tuple[str, ...]], ...]
    limits: Mapping[Cell, Limits]
    stopped: bool = False


@dataclass(frozen=True)
class Market:
    """All queues and what they use."""

    queues: Mapping[str, Queue] = field(default_factory=dict)
    used: Mapping[str, Amounts] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset({PODS})
    """Resources that need no quota where a queue has none of them."""

    def available(self, queue: str, cell: Cell) -> Number:
        """Return how much more of a flavour of a resource a queue can get."""
        own = self.queues[queue]
        limits, used = own.limits[cell], self._used(queue, cell)
        if not own.cohort:
            return limits.nominal - used
        guaranteed = limits.nominal - limits.lent
        pool: Number = 0
        for each in self.queues.values():
            if each.cohort == own.cohort and cell in each.limits:
                theirs = each.limits[cell]
                beyond = self._used(each.name, cell) - (theirs.nominal - theirs.lent)
                pool += theirs.lent - max(0, beyond)
        free = max(0, guaranteed - used) + pool
        return min(free, limits.nominal + limits.borrowing - used)

    def assignment(self, queue: str, needs: Resources) -> Amounts | None:
        """Return what a Workload would be given by a queue now; None where it does not fit.

        The resources of a group come from one flavour, the first that has all of them.
        """
        own = self.queues.get(queue)
        if own is None or own.stopped:
            return None
        found: dict[Cell, Number] = {}
        left = {name: amount.value for name, amount in needs.items() if amount.value}
        for covered, flavors in own.groups:
            wanted = {name: value for name, value in left.items() if name in covered}
            for name in wanted:
                del left[name]
            fitting = (
                flavor
                for flavor in flavors
                if all(
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
        return bool(found and theirs and found.cohort and found.cohort == theirs.cohort)

    def _used(self, queue: str, cell: Cell) -> Number:
        return self.used.get(queue, {}).get(cell, 0)


def market(queues: Iterable[ClusterQueue], workloads: Iterable[Workload]) -> Market:
    """Return the queues and what the Workloads that hold quota use of them."""
    found = Market({each.metadata.name: _queue(each) for each in queues})
    used: dict[str, dict[Cell, Number]] = {}
    ignored = {PODS}
    for workload in workloads:
        admission = workload.status.admission
        if not workload.reserved or admission is None:
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
        left = 1 - Fraction(min(done.get(given.name, 0), given.count), given.count) if given.count else 1
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
    limits: dict[Cell, Limits] = {}
    groups = []
    for group in found.spec.resource_groups:
        groups.append((frozenset(group.covered_resources), tuple(each.name for each in group.flavors)))
        for flavor in group.flavors:
            for each in flavor.resources:
                limits[flavor.name, each.name] = Limits(
                    _number(each.nominal_quota),
                    inf if each.borrowing_limit is None else _number(each.borrowing_limit),
                    inf if each.lending_limit is None else _number(each.lending_limit),
                )
    stopped = found.spec.stop_policy != "None"
    return Queue(found.metadata.name, found.spec.cohort_name, tuple(groups), limits, stopped)


def _number(amount: Quantity) -> Number:
    """Return an amount of another system's object; Kueue says what is wrong with one that is none."""
    try:
        return Amount.parse(amount).value
    except MalformedQuantity:
        return 0
