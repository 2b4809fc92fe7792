"""What is written about a job's Workloads: its base, its slices, what they report and return. Pure.

Each rule yields steps; all of them are carried out in one pass, in their order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from elasticjob.api.readings import after, moment, number
from elasticjob.api.sentences import amount
from elasticjob.controllers.kueue.demand import (
    CLASS,
    SLICE,
    PodSetRequest,
    QueueRequest,
    is_slice,
    lower,
    number_of,
)
from elasticjob.controllers.kueue.grant import flavors_of
from elasticjob.controllers.kueue.quota import Market, usage
from elasticjob.controllers.kueue.reclaim import TOGETHER, Reclaim, after_a_look, past_reclaims
from elasticjob.controllers.kueue.replacement import Holdings, covers, obstacle
from elasticjob.controllers.kueue.workload import (
    ADMITTED,
    CHAIN,
    EVICTED,
    FINISHED,
    GATED_BY,
    GIVEN_BACK,
    HELD,
    IN_USE,
    NEEDED,
    PODS_READY,
    PODS_READY_TIMEOUT,
    QUOTA_RESERVED,
    REPLACES,
    REQUEUED,
    REQUEUED_AT_ONCE,
    ROOM_FOR,
    TRIES,
    WORKLOAD,
    PodSet,
    Workload,
)
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.passes.plan import SOON, Action, Create, Delete, Note, Patch, Plan, soonest
from elasticjob.kube.objects.conditions import is_true, manifest, set_condition
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Condition
from elasticjob.sizing.exits import ExitReason

PATIENCE: Final = timedelta(seconds=30)
"""How long a slice waits for quota that looked idle, before it is withdrawn."""
IDLE: Final = timedelta(seconds=5)
"""Time between two looks for idle quota, while a job wants more."""
CALM: Final = timedelta(seconds=15)
"""How long a job does not grow after a slice was evicted or given back."""
WITHDRAWN: Final = timedelta(seconds=60)
"""The same after a slice was withdrawn: what looks idle is not to be had."""
LONGEST: Final = timedelta(hours=1)
"""The most of it: as Kueue's own, it is doubled after each try of which the pods were not ready in time."""
PAUSED: Final = "elasticjob.dlrover/deactivated-by"
"""On the base: `suspend` where the operator has deactivated it, since the user has suspended the job."""


@dataclass(frozen=True)
class Seen:
    """A job, its Workloads, its pods, and the quota around it. Without `demand` no queue admits the job."""

    demand: QueueRequest | None
    workloads: tuple[Workload, ...] = ()
    lives: tuple[Life, ...] = ()
    market: Market = field(default_factory=Market)
    queue: str = ""
    reclaim: Reclaim = field(default_factory=Reclaim)
    crowded: bool = False
    unknown_class: str = ""
    """The priority class that the job names and that there is not."""
    priority: int | None = None
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of roles that must be in one domain of a topology: the label of their machines, as far as known."""

    @cached_property
    def holdings(self) -> Holdings | None:
        """The Workloads of the job, each in its part."""
        return Holdings(self.demand, self.workloads) if self.demand else None

    @property
    def base(self) -> Workload | None:
        """The Workload of what runs at least."""
        return self.holdings.base if self.holdings else None

    @cached_property
    def slices(self) -> tuple[Workload, ...]:
        """The Workloads of nodes beyond the minimum, the oldest first; stale ones are not counted."""
        return tuple(sorted(self.holdings.slices, key=number_of)) if self.holdings else ()

    @cached_property
    def larger(self) -> Mapping[str, Manifest]:
        """The Workloads that are to take the place of what the job has, by its name: the pods need more."""
        demand, base = self.demand, self.base
        if demand is None or base is None or not base.is_admitted or demand.prebuilt or demand.elsewhere:
            return {}
        if demand.ended is not None or demand.suspended:
            return {}
        found = ((each, self._larger(demand, each)) for each in (base, *self.slices) if each.is_admitted)
        return {old.metadata.name: _instead(made, old) for old, made in found if made and not obstacle(old)}

    def _larger(self, demand: QueueRequest, workload: Workload) -> Manifest | None:
        if not is_slice(workload):
            counts = {
                role.name: max(role.least - self._minimum_in_slices[role.name], workload.count(role.name))
                for role in demand.roles
            }
            sets = [role.pods(counts[role.name]) for role in demand.roles if counts[role.name]]
            return None if covers(workload, sets) else demand.base_workload(self.priority, counts)
        role = next((each for each in demand.roles if workload.count(each.name)), None)
        if role is None or covers(workload, [role.pods(workload.count(role.name))]):
            return None
        keep = {} if demand.mixed else flavors_of(role.name, (workload,))
        where = {**self.market.labels(keep.values()), **self.domains.get(role.name, {})}
        count = workload.count(role.name)
        return demand.slice_workload(role, number_of(workload), count, self.priority, where)

    @cached_property
    def beside(self) -> tuple[Workload, ...]:
        """The Workloads that wait to take the place of others, and still should."""
        found = self.holdings.beside if self.holdings else ()
        return tuple(each for each in found if _is_for(each, self.larger.get(each.replaces)))

    @cached_property
    def base_slices(self) -> frozenset[str]:
        """The slices without which the job would have less than its minimum: that was raised while it ran."""
        return frozenset(each.metadata.name for each in self._needing)

    @cached_property
    def _minimum_in_slices(self) -> Counter[str]:
        """Nodes of the minimum that are in slices, by role."""
        found = Counter[str]()
        for each in self._needing:
            found[each.metadata.labels[SLICE]] += each.count(each.metadata.labels[SLICE])
        return found

    @cached_property
    def _needing(self) -> tuple[Workload, ...]:
        if self.demand is None or self.base is None or not self.base.is_admitted:
            return ()
        left = {role.name: role.least - self.base.count(role.name) for role in self.demand.roles}
        found = list[Workload]()
        for each in self.slices:
            role = each.metadata.labels[SLICE]
            if left.get(role, 0) > 0 and each.is_admitted and not each.leaving:
                left[role] -= each.count(role)
                found.append(each)
        return tuple(found)

    @cached_property
    def stale(self) -> tuple[Workload, ...]:
        """The Workloads that the job does not need."""
        base = (self.base,) if self.base else ()
        kept = {each.metadata.name for each in (*base, *self.slices, *self.beside)}
        return tuple(each for each in self.workloads if each.metadata.name not in kept)

    def users(self, workload: Workload) -> int:
        """How many pods, which hold resources, a Workload has: none if another has or is to get them."""
        known = self.holdings
        if known and (workload.metadata.name in known.predecessors or workload in known.beside):
            return 0
        return self._users[workload.chain]

    @cached_property
    def to_reclaim(self) -> dict[str, str]:
        """The slices to give back for others, each with the mark of the Workload that it is for."""
        wanted = self.reclaim.slices
        found = {s.metadata.name: wanted.get((s.metadata.namespace, s.metadata.name)) for s in self.slices}
        admitted = {each.metadata.name for each in self.slices if each.is_admitted}
        return {name: mark for name, mark in found.items() if mark and name in admitted}

    @cached_property
    def _users(self) -> Counter[str]:
        return Counter(life.workload for life in self.lives if not life.over)


@dataclass(frozen=True)
class Step:
    """Writes, with their event, or a time to look again."""

    groups: tuple[tuple[Action, ...], ...] = ()
    note: Note | None = None
    again_in: timedelta | None = None


Rule = Callable[[Seen, datetime], Iterator[Step]]


def decide(seen: Seen, now: datetime) -> Plan:
    """Return all that is to be written about the job's Workloads."""
    steps = [step for rule in RULES for step in rule(seen, now)]
    groups = tuple(group for step in steps for group in step.groups if group)
    notes = tuple(step.note for step in steps if step.note)
    plan = Plan("Queue", details=notes, again_in=soonest(s.again_in for s in steps))
    return _without_conflicts(plan, groups)


def _without_conflicts(plan: Plan, groups: Iterable[tuple[Action, ...]]) -> Plan:
    """Return a plan with these writes: one at a version that another changes waits for a next pass."""
    kept, written = list[tuple[Action, ...]](), set[str]()
    for group in groups:
        fine = tuple(a for a in group if not (isinstance(a, Patch) and a.version and a.name in written))
        written |= {action.name for action in fine if isinstance(action, Patch)}
        plan = plan if len(fine) == len(group) else plan.again_by(SOON)
        kept += [fine] if fine else []
    return replace(plan, groups=tuple(kept))


def frees(plan: Plan) -> bool:
    """Whether quota is returned: by then no pod may use it."""
    return any(isinstance(action, Patch) and action.frees for action in plan.actions)


def grows(plan: Plan) -> bool:
    """Whether quota is asked for because it looks idle."""
    made = (action for action in plan.actions if isinstance(action, Create))
    return any(SLICE in each.manifest["metadata"]["labels"] for each in made)


def let_go_of_what_no_job_needs(seen: Seen, now: datetime) -> Iterator[Step]:
    """Workloads of a job that is gone, or that are of another need or queue, go when no pod uses them."""
    for workload in seen.stale if seen.demand else seen.workloads:
        if not seen.users(workload):
            yield Step(_gone(workload))


def finish_with_the_job(seen: Seen, now: datetime) -> Iterator[Step]:
    """The Workloads of a job that has ended hold nothing once its pods have ended."""
    demand = seen.demand
    if demand is None or demand.ended is None:
        return
    for workload in seen.slices:
        if not seen.users(workload):
            yield Step(_gone(workload))
    base = seen.base
    if base is None or seen.users(base):
        return
    if not base.is_finished:
        reason = "Succeeded" if demand.ended else "Failed"
        finished = _condition(base, FINISHED, True, reason, demand.words or f"the job has {reason.lower()}")
        yield Step(((_status(base, [finished], now, frees=True),),))
    if IN_USE in base.metadata.finalizers:
        yield Step(((_unfinalized(base),),))


def queue_the_base(seen: Seen, now: datetime) -> Iterator[Step]:
    """A job that has not ended asks for what it runs at least."""
    demand = seen.demand
    if demand is None or demand.ended is not None or demand.prebuilt:
        return
    if seen.base is None and (seen.unknown_class or demand.suspended):
        return
    if seen.base is None:
        made = Create(WORKLOAD, demand.base_workload(seen.priority))
        counts = ", ".join(f"{role.name} {role.least}" for role in demand.roles if role.least)
        sentence = f"Workload {demand.base} waits in queue {demand.queue}: {counts}"
        yield Step(((made,),), Note("Queued", sentence))
    elif (seen.base.metadata.deletion_timestamp or seen.base.is_finished) and not seen.users(seen.base):
        yield Step(_gone(seen.base))  # it is made anew


def own_the_prebuilt_base(seen: Seen, now: datetime) -> Iterator[Step]:
    """The Workload that MultiKueue has made for a job here belongs to that job."""
    demand, base = seen.demand, seen.base
    if demand is None or base is None or not demand.prebuilt or base.metadata.owner_references:
        return
    about = {
        "labels": demand.labels,
        "finalizers": sorted({*base.metadata.finalizers, IN_USE}),
        "ownerReferences": [demand.owner],
    }
    yield Step(((_patch(base, {"metadata": about}, versioned=True),),))


def open_the_gates_of_the_base(seen: Seen, now: datetime) -> Iterator[Step]:
    """A gate that another controller has taken from the job is open for Kueue as well."""
    demand, base = seen.demand, seen.base
    if demand is None or base is None or demand.prebuilt:
        return
    left = demand.notes.get(GATED_BY, "")
    before = base.metadata.annotations.get(GATED_BY, "")
    if {*filter(None, left.split(","))} < {*filter(None, before.split(","))}:
        yield Step(((_patch(base, {"metadata": {"annotations": {GATED_BY: left or None}}}),),))


def have_the_priority_of_the_class(seen: Seen, now: datetime) -> Iterator[Step]:
    """Another WorkloadPriorityClass of a job is at once that of its base; its slices stay one lower, but for
    those that the minimum needs."""
    demand, base = seen.demand, seen.base
    if demand is None or base is None or demand.prebuilt:
        return
    changes = changes_class(demand, base)
    value = seen.priority if changes else base.spec.priority
    if changes and value is not None:  # else there is no such class
        to = {"priorityClassRef": {"name": demand.priority_class[1]}, "priority": value}
        yield Step(((_patch(base, {"spec": to}),),))
    value = base.spec.priority if value is None else value
    for each in seen.slices:
        needed = each.metadata.name in seen.base_slices
        own, note = ((value or 0), "the minimum") if needed else (lower(value), None)
        change: Manifest = {} if each.spec.priority in (None, own) else {"spec": {"priority": own}}
        if each.metadata.annotations.get(NEEDED) != note:
            change |= {"metadata": {"annotations": {NEEDED: note}}}
        if change:
            yield Step(((_patch(each, change),),))


def changes_class(demand: QueueRequest, base: Workload) -> bool:
    """Whether a job names another class than its base; Kueue lets nobody add or remove one."""
    (kind, name), ref = demand.priority_class, base.spec.priority_class_ref
    return ref is not None and kind == ref.kind == CLASS and ref.name != name


def pause_with_the_job(seen: Seen, now: datetime) -> Iterator[Step]:
    """A job that its user has suspended asks for nothing: its base is deactivated, and activated again."""
    demand, base = seen.demand, seen.base
    if demand is None or base is None or demand.ended is not None or base.is_finished:
        return
    paused = base.metadata.annotations.get(PAUSED) == "suspend"
    if demand.suspended and base.spec.active:
        if any(seen.users(each) for each in (base, *seen.slices)):
            return  # Kueue counts nothing for a Workload that is not active
        change = {"metadata": {"annotations": {PAUSED: "suspend"}}, "spec": {"active": False}}
        yield Step(((_patch(base, change, frees=True),),))
    elif paused and not demand.suspended and not (base.is_evicted and base.has_quota):
        change = {"metadata": {"annotations": {PAUSED: None}}, "spec": {"active": True}}
        yield Step(((_patch(base, change),),))


def return_the_quota_of_an_evicted_base(seen: Seen, now: datetime) -> Iterator[Step]:
    """When no pod is left, the admission is returned; Kueue queues the base again by the reason."""
    base = seen.base
    if base is None or base.is_finished or not (base.is_evicted and base.has_quota):
        return
    names = (base, *seen.slices)
    if any(seen.users(each) for each in names):
        return
    evicted = base.condition(EVICTED)
    assert evicted is not None
    at_once = evicted.reason in REQUEUED_AT_ONCE
    conditions = [
        _condition(base, QUOTA_RESERVED, False, "Pending", evicted.message),
        _condition(base, ADMITTED, False, "NoReservation", "The workload has no reservation"),
        _condition(base, REQUEUED, at_once, evicted.reason, evicted.message),
        _readiness(base, None, ready=False),
    ]
    change = _status(base, conditions, now, frees=True, admission=None)
    sentence = f"the quota of queue {seen.demand.queue if seen.demand else ''} is returned: {evicted.message}"
    yield Step(((change,),), Note("QuotaReturned", sentence))


def return_slices(seen: Seen, now: datetime) -> Iterator[Step]:
    """A slice that was evicted or given back, or whose base does not run, is deleted once no pod uses it."""
    base, demand = seen.base, seen.demand
    if demand is None or demand.ended is not None:
        return
    runs = base is not None and base.is_admitted and not demand.suspended
    known = {role.name for role in demand.roles}
    out = [
        each
        for each in seen.slices
        if each.leaving or each.is_finished or not runs or each.metadata.labels.get(SLICE) not in known
    ]
    yield from (Step(((_mark(each, "the base"),),)) for each in out if each.is_admitted)
    gone = [each for each in out if not each.is_admitted and not seen.users(each)]
    if base is not None and runs:
        yield from _pause(base, [each for each in gone if each.is_evicted], now)
    yield from (Step(_gone(each)) for each in gone)


def _pause(base: Workload, evicted: Iterable[Workload], now: datetime) -> Iterator[Step]:
    """No growth for a while, twice as long after each try of which pods were not ready in time."""
    why = {condition.reason for each in evicted if (condition := each.condition(EVICTED))}
    if PODS_READY_TIMEOUT not in why:
        yield from (Step((_holds(base, now),)) for _ in why)
    elif _held_for(base, now) <= timedelta(0):  # else it was counted with another slice of that try
        tries = number(base.metadata.annotations.get(TRIES)) + 1
        calm = min(WITHDRAWN * 2 ** min(tries - 1, 6), LONGEST)
        sentence = (
            f"pods of slices were not ready in time, {amount(tries, 'time')}: no growth for {calm.seconds} s"
        )
        yield Step((_holds(base, now, calm, tries),), Note("SlicesNotReady", sentence, warning=True))


def remember_for_whom_slices_are_given_back(seen: Seen, now: datetime) -> Iterator[Step]:
    """Room is made once for a Workload, unless others took it; an annotation of the base survives a crash."""
    if seen.base is None:
        return
    before = past_reclaims(seen.base)
    current = after_a_look(before, seen.reclaim, now) | dict.fromkeys(seen.to_reclaim.values(), now)
    if current != before:
        text = json.dumps({mark: at.isoformat() if at else "" for mark, at in current.items()})
        change = {"metadata": {"annotations": {ROOM_FOR: text if current else None}}}
        yield Step(((_patch(seen.base, change),),))
    if any(current.values()):
        yield Step(again_in=TOGETHER)


def give_back_for_others(seen: Seen, now: datetime) -> Iterator[Step]:
    """Slices are given back for Workloads of others that wait and would fit."""
    base, chosen = seen.base, [each for each in seen.slices if each.metadata.name in seen.to_reclaim]
    if base is None or not chosen:
        return
    count = sum(each.count(pods.name) for each in chosen for pods in each.spec.pod_sets)
    word = "node is" if count == 1 else "nodes are"
    why = f"others wait in the cohort of ClusterQueue {seen.queue}"
    sentence = f"{count} {word} given back: {why}; no growth for {CALM.seconds} s"
    patches = tuple(_mark(each, "others") for each in chosen)
    yield Step((_holds(base, now), patches), Note("QuotaGivenBack", sentence))


def renew_what_was_returned(seen: Seen, now: datetime) -> Iterator[Step]:
    """Quota of pods that have succeeded is returned for good: where such a pod is gone, more is asked for."""
    demand = seen.demand
    if demand is None or demand.ended is not None or demand.elsewhere:
        return
    for each in (*((seen.base,) if seen.base else ()), *seen.slices):
        lost = any(one.count > _succeeded(each, seen.lives)[one.name] for one in each.status.reclaimable_pods)
        if lost and each.is_admitted and not seen.users(each):
            yield Step(((_mark(each, "the job"),),) if is_slice(each) else _gone(each))


def ask_for_larger_ones(seen: Seen, now: datetime) -> Iterator[Step]:
    """A larger Workload is created to replace one whose pods need more."""
    waiting, demand = {each.replaces for each in seen.beside}, seen.demand
    for name, made in seen.larger.items():
        if SLICE in made["metadata"]["labels"] and name not in waiting:
            yield Step(again_in=IDLE)
            if _may_not_grow(seen, now) or not _looks_idle(seen, name, made):
                continue
        if demand is None or name in waiting:
            continue
        waits = f"Workload {made['metadata']['name']} waits in queue {demand.queue}"
        sentence = f"{waits} to take the place of {name}, which is for less"
        yield Step(((Create(WORKLOAD, made),),), Note("QuotaAsked", sentence))


def _looks_idle(seen: Seen, name: str, made: Manifest) -> bool:
    """Whether there is quota for a larger slice, without the one whose place it takes."""
    old = next(each for each in seen.slices if each.metadata.name == name)
    [pods] = (PodSet(each["name"], each["count"], each["template"]) for each in made["spec"]["podSets"])
    left = seen.market.with_use(seen.queue, usage(old), -1)
    return left.fitting(seen.queue, (pods,), flavors_of(pods.name, (old,))) is not None


def _is_for(waiting: Workload, made: Manifest | None) -> bool:
    """Whether a Workload that waits is as it would be made now."""
    if made is None or made["metadata"]["name"] != waiting.metadata.name:
        return False
    return all(waiting.count(each["name"]) == each["count"] for each in made["spec"]["podSets"])


def _instead(made: Manifest, old: Workload) -> Manifest:
    """Return a Workload that takes the place of another one, with its pods."""
    link = {REPLACES: f"{old.metadata.namespace}/{old.metadata.name}", CHAIN: old.chain}
    kept = {n: v for n, v in old.metadata.annotations.items() if n in (HELD, ROOM_FOR, TRIES)}
    about = made["metadata"]
    if about["name"] == old.metadata.name:  # it was made smaller meanwhile
        about = {**about, "name": f"{about['name']}-anew"}
    return {**made, "metadata": {**about, "annotations": {**about.get("annotations", {}), **kept, **link}}}


def _may_not_grow(seen: Seen, now: datetime) -> bool:
    return seen.base is None or seen.crowded or _held_for(seen.base, now) > timedelta(0)


@dataclass(frozen=True)
class Growth:
    """The nodes of a role beyond the minimum of a job that runs."""

    demand: QueueRequest
    base: Workload
    role: PodSetRequest
    slices: tuple[Workload, ...]
    """The slices that the job keeps."""

    @property
    def pending(self) -> tuple[Workload, ...]:
        """The slices that wait for quota."""
        return tuple(each for each in self.slices if each.pending)

    @property
    def have(self) -> int:
        """How many nodes there is quota for, or may soon be."""
        return self.base.count(self.role.name) + sum(each.count(self.role.name) for each in self.slices)

    def late(self, beside: Iterable[Workload], now: datetime) -> tuple[Workload, ...]:
        """The slices, also those that wait beside others, that have waited too long."""
        mine = (each for each in beside if is_slice(each) and each.count(self.role.name))
        return tuple(each for each in (*self.pending, *mine) if _age(each, now) >= PATIENCE)


def _growths(seen: Seen) -> Iterator[Growth]:
    """Yield the growth of each role of a running job."""
    base, demand = seen.base, seen.demand
    if base is None or demand is None or demand.ended is not None or not base.is_admitted or demand.suspended:
        return
    for role in demand.roles:
        kept = (e for e in seen.slices if e.count(role.name) and not e.leaving and not e.is_finished)
        yield Growth(demand, base, role, tuple(kept))


def withdraw_what_waited_too_long(seen: Seen, now: datetime) -> Iterator[Step]:
    """A slice that waits although quota looked idle is withdrawn, and the job does not grow for a while."""
    for growth in _growths(seen):
        queue, role = growth.demand.queue, growth.role.name
        if late := growth.late(seen.beside, now):
            sentence = f"queue {queue} has no quota for {sum(each.count(role) for each in late)} {role} more"
            groups = [_holds(growth.base, now, WITHDRAWN), *(group for each in late for group in _gone(each))]
            yield Step(tuple(groups), Note("QuotaNotIdle", sentence))
        elif waiting := (*growth.pending, *(each for each in seen.beside if is_slice(each))):
            yield Step(again_in=PATIENCE - max(_age(each, now) for each in waiting))


def give_up_the_surplus(seen: Seen, now: datetime) -> Iterator[Step]:
    """Slices beyond what is wanted are given back: those that wait, those without a pod, then the last."""
    for growth in _growths(seen):
        role, surplus = growth.role, growth.have - growth.role.wanted
        settled = sum(life.role == role.name and not life.over for life in seen.lives) <= role.wanted
        kept = () if growth.late(seen.beside, now) else growth.slices
        for each in sorted(kept, key=lambda e: (not e.pending, seen.users(e) > 0, -number_of(e))):
            # a node that is left in a slice when others have gone moves to a place that these had
            if each.count(role.name) <= surplus and (settled or not seen.users(each)):
                surplus -= each.count(role.name)
                yield Step(((_mark(each, "the job"),),) if each.is_admitted else _gone(each))


def ask_for_idle_quota(seen: Seen, now: datetime) -> Iterator[Step]:
    """A job that wants more nodes asks for slices, as many as look idle."""
    growths = tuple(_growths(seen))
    whole = all(each.have >= each.role.wanted for each in growths) and all(map(_is_ready, seen.slices))
    if growths and whole and TRIES in growths[0].base.metadata.annotations:
        yield Step(((_patch(growths[0].base, {"metadata": {"annotations": {TRIES: None}}}),),))
    for growth in growths:
        role, missing = growth.role, growth.role.wanted - growth.have
        leaving = any(each.count(role.name) and each.leaving for each in seen.slices)
        if missing <= 0 or leaving or growth.late(seen.beside, now) or _is_stuck(growth.base, now):
            continue
        if (left := _held_for(growth.base, now)) > timedelta(0):
            yield Step(again_in=left)
            continue
        placed = not (role.required_topology and role.least) or role.name in seen.domains
        if placed and not seen.crowded:
            yield from _slices(seen, growth.demand, role, missing)
        yield Step(again_in=IDLE)


def _slices(seen: Seen, demand: QueueRequest, role: PodSetRequest, missing: int) -> Iterator[Step]:
    """New slices of a role, as far as quota is idle."""
    market, used = seen.market, {number_of(each) for each in seen.slices}
    keep = {} if demand.mixed else flavors_of(role.name, (*((seen.base,) if seen.base else ()), *seen.slices))
    where = {**market.labels(keep.values()), **seen.domains.get(role.name, {})}
    free = (number for number in range(1, len(used) + missing + 1) if number not in used)
    made: list[Create] = []
    asked = 0
    while missing >= role.unit:
        count = min(role.step, missing - missing % role.unit)
        wanted = demand.slice_workload(role, next(free), count, seen.priority, where)
        amounts = market.fitting(seen.queue, (role.pods(count, where),), keep)
        if amounts is None:
            break
        market = market.with_use(seen.queue, amounts)
        made.append(Create(WORKLOAD, wanted))
        missing, asked = missing - count, asked + count
    if made:
        sentence = f"quota of ClusterQueue {seen.queue} is idle: {asked} {role.name} more are asked for"
        yield Step((tuple(made),), Note("QuotaAsked", sentence))


def report(seen: Seen, now: datetime) -> Iterator[Step]:
    """Kueue is told whether the pods are ready, and how many of them will not run again."""
    demand = seen.demand
    if demand is None or demand.ended is not None:
        return
    for workload in (*((seen.base,) if seen.base else ()), *seen.slices):
        if not workload.is_admitted or workload.metadata.name in seen.to_reclaim:
            continue
        ready = demand.ready if demand.elsewhere else _ready(demand, workload, seen)
        repeat = {role.name for role in demand.roles if role.repeats}
        done = {name: n for name, n in _done(workload, seen.lives).items() if name not in repeat}
        changes: Manifest = {}
        if done != {each.name: each.count for each in workload.status.reclaimable_pods} and done:
            changes["reclaimablePods"] = [{"name": n, "count": c} for n, c in sorted(done.items())]
        before = workload.condition(PODS_READY)
        if (before is not None and before.status == "True") != ready or before is None:
            conditions = [_readiness(workload, before, ready)]
        else:
            conditions = []
        if changes or conditions:
            yield Step(((_status(workload, conditions, now, frees=bool(changes), **changes),),))


def be_for_what_is_wanted(seen: Seen, now: datetime) -> Iterator[Step]:
    """The base of a job that was made smaller is for as many as are wanted, once the others have left."""
    demand, base = seen.demand, seen.base
    if demand is None or base is None or demand.ended is not None or demand.prebuilt or demand.elsewhere:
        return
    if base.status.reclaimable_pods or obstacle(base) or not (base.is_admitted or base.pending):
        return
    live = Counter(life.role for life in seen.lives if life.workload == base.chain and not life.over)
    least = {role.name: role.least for role in demand.roles}
    sets = base.spec.pod_sets
    counts = {
        each.name: min(each.count, max(n, live[each.name])) if base.has_quota else least.get(each.name, n)
        for each, n in zip(sets, _target(demand, base), strict=True)
    }
    if fewer := [f"{each.name} {counts[each.name]}" for each in sets if each.count != counts[each.name]]:
        change = {"spec": {"podSets": [each.manifest(counts[each.name]) for each in sets]}}
        sentence = f"Workload {base.metadata.name} is for no more than the job wants: {', '.join(fewer)}"
        write = _patch(base, change, frees=base.has_quota, versioned=True)
        yield Step(((write,),), Note("QuotaReturned", sentence))


RULES: Final[tuple[Rule, ...]] = (
    let_go_of_what_no_job_needs,
    finish_with_the_job,
    own_the_prebuilt_base,
    open_the_gates_of_the_base,
    have_the_priority_of_the_class,
    pause_with_the_job,
    queue_the_base,
    return_the_quota_of_an_evicted_base,
    return_slices,
    remember_for_whom_slices_are_given_back,
    give_back_for_others,
    renew_what_was_returned,
    ask_for_larger_ones,
    withdraw_what_waited_too_long,
    give_up_the_surplus,
    ask_for_idle_quota,
    report,
    be_for_what_is_wanted,  # last: Kueue refuses it without ElasticJobsViaWorkloadSlices
)


def _readiness(workload: Workload, before: Condition | None, ready: bool) -> Condition:
    """PodsReady; by its reason Kueue tells a start from a recovery: each has a time limit of its own."""
    recovers = before is not None and (before.status == "True" or before.reason == "WaitForRecovery")
    word = (
        ("Recovered" if ready else "WaitForRecovery") if recovers else "Started" if ready else "WaitForStart"
    )
    told = "All pods are ready" if ready else "Not all pods are ready"
    return _condition(workload, PODS_READY, ready, word, told)


def _target(demand: QueueRequest, workload: Workload) -> list[int]:
    """Return how many pods of each pod set of a Workload the job wants: fewer once it was made smaller."""
    wanted = {role.name: role.wanted for role in demand.roles}
    return [min(each.count, wanted.get(each.name, each.count)) for each in workload.spec.pod_sets]


def _ready(demand: QueueRequest, workload: Workload, seen: Seen) -> bool:
    """Whether each pod is ready or has succeeded; of those that are gone the job knows, not its Workloads."""
    fine = Counter(
        life.role
        for life in seen.lives
        if life.workload == workload.chain and (life.ready or _has_succeeded(life))
    )
    if workload == seen.base:
        there = {(life.role, life.index) for life in seen.lives}
        gone = ((role.name, index) for role in demand.roles for index in role.completed)
        fine.update(role for role, index in gone if (role, index) not in there)
    wanted = zip(workload.spec.pod_sets, _target(demand, workload), strict=True)
    return all(fine[each.name] >= count for each, count in wanted)


def _done(workload: Workload, lives: Collection[Life]) -> dict[str, int]:
    """Return how many pods of each pod set have succeeded and left their place, never fewer than before."""
    found = _succeeded(workload, lives)
    live = Counter(life.role for life in lives if life.workload == workload.chain and not life.over)
    before = {each.name: each.count for each in workload.status.reclaimable_pods}
    counts = {
        each.name: max(min(found[each.name], each.count - live[each.name]), before.get(each.name, 0))
        for each in workload.spec.pod_sets
    }
    return {name: min(count, workload.count(name)) for name, count in counts.items() if count > 0}


def _succeeded(workload: Workload, lives: Iterable[Life]) -> Counter[str]:
    mine = (life for life in lives if life.workload == workload.chain)
    return Counter(life.role for life in mine if life.over and _has_succeeded(life))


def _has_succeeded(life: Life) -> bool:
    return life.ended is not None and life.ended.reason is ExitReason.SUCCEEDED and not life.terminating


def _age(workload: Workload, now: datetime) -> timedelta:
    created = workload.metadata.creation_timestamp
    return now - created if created else timedelta(0)


def _is_stuck(base: Workload, now: datetime) -> bool:
    """Whether the pods of what runs at least have not become ready for a while: more would not either."""
    admitted = base.condition(ADMITTED)
    if _is_ready(base):
        return False
    since = admitted.last_transition_time if admitted else None
    return since is not None and now - since >= PATIENCE


def _is_ready(workload: Workload) -> bool:
    return is_true(workload.status.conditions, PODS_READY)


def _held_for(base: Workload, now: datetime) -> timedelta:
    """Return how long the job does not grow."""
    until = moment(base.metadata.annotations.get(HELD))
    return min(until - now, LONGEST) if until else timedelta(0)


def _holds(base: Workload, now: datetime, calm: timedelta = CALM, tries: int = 0) -> tuple[Action, ...]:
    until = after(now, max(calm, _held_for(base, now))).isoformat()
    notes = {HELD: until, TRIES: str(tries)} if tries else {HELD: until}
    return (_patch(base, {"metadata": {"annotations": notes}}),)


def _gone(workload: Workload) -> tuple[tuple[Action, ...], ...]:
    """The writes that delete a Workload, with which its quota is free."""
    about = workload.metadata
    drop = ((_unfinalized(workload),),) if IN_USE in about.finalizers else ()
    if about.deletion_timestamp is not None:
        return drop
    return (*drop, (Delete(WORKLOAD, about.name, about.uid),))


def _mark(workload: Workload, whom: str) -> Patch:
    """The write that marks a slice as on its way back: where that is seen, no pod is made in it.

    Kueue counts nothing for one that is not active.
    """
    return _patch(workload, {"metadata": {"annotations": {GIVEN_BACK: whom}}})


def _unfinalized(workload: Workload) -> Patch:
    kept = [each for each in workload.metadata.finalizers if each != IN_USE]
    return _patch(workload, {"metadata": {"finalizers": kept}}, frees=True)


def _patch(workload: Workload, body: Manifest, *, frees: bool = False, versioned: bool = False) -> Patch:
    about = workload.metadata
    version = about.resource_version if frees or versioned else None
    return Patch(WORKLOAD, about.name, about.uid, body, version=version, frees=frees)


def _status(
    workload: Workload, conditions: list[Condition], now: datetime, *, frees: bool = False, **fields: object
) -> Patch:
    """The write of some conditions, at the version that was seen: the list is replaced as a whole."""
    found = workload.status.conditions
    for each in conditions:
        found = set_condition(found, each, now)
    status = {"conditions": [manifest(each) for each in found], **fields}
    about = workload.metadata
    return Patch(
        WORKLOAD,
        about.name,
        about.uid,
        {"status": status},
        subresource="status",
        version=about.resource_version,
        frees=frees,
    )


def _condition(workload: Workload, type_: str, true: bool, reason: str, message: str) -> Condition:
    return Condition(
        type=type_,
        status="True" if true else "False",
        reason=reason,
        message=message,
        observed_generation=workload.metadata.generation,
    )
