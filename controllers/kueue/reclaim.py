"""Which slices are given back for Workloads that wait: for those that are admitted then, and no more. Pure.

Kueue takes slices back itself where its policies let it preempt. This is for where they do not: whoever waits
is more important than nodes beyond a job's minimum. Of the jobs that could give, the one with the most slices
gives its youngest, so that they give evenly.

Kueue has more rules than are known here. So the bases remember for which Workloads slices were given back
(ROOM_FOR). One that has its room for JUDGED, and is not admitted, is in vain: until it or its queue changes,
nobody makes room for it, and no growth waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from elasticjob.api.readings import decode, moment
from elasticjob.controllers.kueue.cohorts import Amounts
from elasticjob.controllers.kueue.demand import is_slice, number_of, owner_job
from elasticjob.controllers.kueue.quota import Market, usage
from elasticjob.controllers.kueue.workload import (
    EVICTED,
    NEEDED,
    QUOTA_RESERVED,
    REQUEUED,
    ROOM_FOR,
    Workload,
)
from elasticjob.kube.json import JsonReader

WAITS: Final = timedelta(seconds=2)
"""How long a Workload waits before others make room: Kueue may be about to admit it."""

MOST_SERVED: Final = 8
"""Workloads of one queue for which room is made at one time, the most important first."""
FORGOTTEN: Final = timedelta(seconds=30)
"""How long a Workload that would fit keeps others from growing: Kueue does not admit it, for its reasons."""
TOGETHER: Final = timedelta(seconds=10)
"""How long jobs give back for a Workload once the first has; the time between two looks at what leaves."""
JUDGED: Final = timedelta(seconds=30)
"""How long a Workload may take to be admitted once its room is there."""
CANNOT: Final = frozenset({"Inadmissible", "Misconfigured", "Suspended"})
"""Kueue's reasons for Workloads that no free quota would let in: their queue is missing or stopped."""
USELESS: Final = CANNOT | {"AdmissionGated", "ExceedsMaxQuota", "NoMatchingFlavor", "TopologyPlacementFailed"}
"""All of Kueue's reasons for which no free quota helps (UnadmittedWorkloadsObservability)."""
MISFITS: Final = (
    "doesn't match ClusterQueue selector",
    "resources validation failed",
    "resources didn't satisfy LimitRange constraints",
    "failed admission checks",
)
"""Without that gate the reason is Pending for all: Kueue's words for Workloads that no free quota helps."""
UNASSIGNED, SHORT = "couldn't assign flavors to pod set ", "insufficient unused quota"
PREEMPTS: Final = "Pending the preemption of"

QueueOf = Callable[[Workload], str]
Attempts = Mapping[str, datetime | None]
"""When slices were last given back for a Workload, by its mark; None: in vain."""
_ATTEMPTS: Final = JsonReader(dict[str, str])


class Room(StrEnum):
    """The state of the room that was made for a Workload that still waits."""

    COMING = "Coming"  # slices are on their way back
    FREE = "Free"
    TAKEN = "Taken"
    VAIN = "Vain"  # it was free for long enough


@dataclass(frozen=True)
class Claim:
    """A Workload that waits for quota, and would be admitted where there is enough."""

    workload: Workload
    queue: str
    mark: str
    age: timedelta
    """How long it has waited; less than 0: it is not to be served yet."""

    def fitting(self, market: Market) -> Amounts | None:
        """Return what it would get; None where it does not fit."""
        return market.fitting(self.queue, self.workload.spec.pod_sets)

    @property
    def preempts(self) -> bool:
        """Whether Kueue itself makes room for it."""
        answer = self.workload.condition(QUOTA_RESERVED)
        return answer is not None and PREEMPTS in answer.message

    def is_forgotten(self, market: Market) -> bool:
        """Whether it fits, and has waited for long: Kueue knows why."""
        return self.age > FORGOTTEN - WAITS and self.fitting(market) is not None


@dataclass(frozen=True)
class Surplus:
    """A slice that could be given back."""

    workload: Workload
    queue: str
    amounts: Amounts

    @property
    def job(self) -> tuple[str, str]:
        """The job that it is of."""
        return job_of(self.workload)


@dataclass(frozen=True)
class Reclaim:
    """The slices to give back, by namespace and name, each with the mark of the Workload that it is for."""

    slices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    rooms: Mapping[str, Room] = field(default_factory=dict)
    """By the marks of the Workloads that wait although room was made for them."""
    waiting: frozenset[str] = frozenset()
    """The marks of all Workloads that wait."""
    again: timedelta | None = None


def job_of(workload: Workload) -> tuple[str, str]:
    """Return namespace and name of the job that a Workload is for."""
    return workload.metadata.namespace, owner_job(workload)


def reclaim(market: Market, workloads: Iterable[Workload], queue_of: QueueOf, now: datetime) -> Reclaim:
    """Return the slices to give back, what became of the room that was made, and when to look again."""
    every = tuple(workloads)
    waiting = claims(market, every, queue_of, now)
    again = min((-each.age for each in waiting if each.age < timedelta(0)), default=None)
    surplus = [_surplus(each) for each in every if _is_surplus(each)]
    leaving = [each for each in surplus if each.workload.leaving]
    left = _without(market, leaving)  # what is on its way back will be idle
    tried = attempts(every)
    rooms = {each.mark: _room(each, market, left, tried[each.mark]) for each in waiting if each.mark in tried}
    usable = [each for each in surplus if each.workload.is_admitted]
    most, counts, chosen = _without(left, usable), Counter[str](), dict[tuple[str, str], str]()
    for one in waiting:
        if one.age < timedelta(0) or counts[one.queue] >= MOST_SERVED or one.fitting(most) is None:
            continue
        room, at = rooms.get(one.mark), tried.get(one.mark)
        if room is Room.VAIN or one.is_forgotten(market):
            continue
        helps = not one.preempts and (room is None or at is None or _may_go_on(room, now - at))
        slices, amounts = _fewest(left, usable if helps else [], one)
        if amounts is None:
            continue
        counts[one.queue] += 1
        left = _without(left, slices).with_use(one.queue, amounts)
        most = most.with_use(one.queue, amounts)
        usable = [each for each in usable if each not in slices]
        chosen |= {(s.workload.metadata.namespace, s.workload.metadata.name): one.mark for s in slices}
    marks = frozenset(_mark(each, market, queue_of) for each in every if _waits(each))
    return Reclaim(chosen, rooms, marks, again)


def claims(
    market: Market, workloads: Iterable[Workload], queue_of: QueueOf, now: datetime
) -> tuple[Claim, ...]:
    """Return the Workloads that wait for quota, the most important first; of a strict queue, its head."""
    every, found, closed = tuple(workloads), list[Claim](), set[str]()
    have = {job_of(each) for each in every if each.has_quota and owner_job(each)}
    for each in sorted(filter(_waits, every), key=_order):
        queue = queue_of(each)
        own, age = market.queues.get(queue), _age(each, now)
        if own is None or queue in closed:
            continue
        if own.strict:
            closed.add(queue)
        if _quota_helps(each) and job_of(each) not in have:  # else it waits beside what its job has
            found.append(Claim(each, queue, _mark(each, market, queue_of), age))
    return tuple(found)


def attempts(workloads: Iterable[Workload]) -> dict[str, datetime | None]:
    """Return for which Workloads room was made, as the bases of our jobs remember it."""
    found: dict[str, datetime | None] = {}
    for each in workloads:
        if owner_job(each) and ROOM_FOR in each.metadata.annotations:
            for mark, at in past_reclaims(each).items():
                last = found.get(mark, at)
                found[mark] = None if at is None or last is None else max(at, last)
    return found


def past_reclaims(base: Workload) -> dict[str, datetime | None]:
    """Return for which Workloads one job gave slices back."""
    found = decode(base.metadata.annotations.get(ROOM_FOR), _ATTEMPTS) or {}
    return {mark: moment(at) for mark, at in found.items() if not at or moment(at)}


def after_a_look(before: Attempts, look: Reclaim, now: datetime) -> dict[str, datetime | None]:
    """Return what a base remembers from now on: nothing of Workloads that do not wait any more."""
    return {
        mark: at and _judged(at, look.rooms.get(mark), now)
        for mark, at in before.items()
        if mark in look.waiting
    }


def _judged(at: datetime, room: Room | None, now: datetime) -> datetime | None:
    if room is Room.VAIN or (room is Room.FREE and now - at >= JUDGED):
        return None
    return now if room is Room.COMING and now - at >= TOGETHER else at


def with_claims(market: Market, workloads: Iterable[Workload], queue_of: QueueOf) -> Market:
    """Return the market in which slices that wait have what they would get."""
    for each in workloads:
        if is_slice(each) and each.pending:
            queue = queue_of(each)
            if (amounts := market.fitting(queue, each.spec.pod_sets)) is not None:
                market = market.with_use(queue, amounts)
    return market


def crowds(
    market: Market, most: Market, workloads: Iterable[Workload], queue_of: QueueOf, now: datetime
) -> frozenset[str]:
    """Return the queues in whose cohort a Workload waits that fits into `most`: no job grows there.

    It is served with what is idle, or given back. One that does not fit even then loses nothing: slices are
    given back when it would. One that would fit, and waits even so, is forgotten after a while.
    """
    every = tuple(workloads)
    tried, waits = attempts(every), set[str]()
    for each in claims(market, every, queue_of, now):
        if each.queue in waits or tried.get(each.mark, now) is None:
            continue
        comes = each.preempts or each.fitting(most) is not None
        if comes and (each.mark in tried or not each.is_forgotten(market)):
            waits.add(each.queue)
    near = {q for q in market.queues if any(market.same_cohort(q, other) for other in waits)}
    behind = {queue_of(each) for each in every if _waits(each)}  # in a strict queue nothing overtakes them
    return frozenset(near | {q for q in behind if q in market.queues and market.queues[q].strict})


def without_slices(market: Market, workloads: Iterable[Workload]) -> Market:
    """Return the market in which no job has more than its minimum."""
    return _without(market, (_surplus(each) for each in workloads if _is_surplus(each)))


def _may_go_on(room: Room, since: timedelta) -> bool:
    """Whether more is given back for a Workload: by other jobs meanwhile, or when its room is taken."""
    return since < TOGETHER or (room is Room.TAKEN and since >= JUDGED)


def _room(one: Claim, market: Market, left: Market, at: datetime | None) -> Room:
    if at is None:
        return Room.VAIN
    if one.fitting(market) is not None:
        return Room.FREE
    return Room.COMING if one.fitting(left) is not None else Room.TAKEN


def _fewest(market: Market, left: list[Surplus], one: Claim) -> tuple[list[Surplus], Amounts | None]:
    """Return the fewest slices with which a Workload fits, and what it gets then; None if none do."""
    if (amounts := one.fitting(market)) is not None:
        return [], amounts
    slices: list[Surplus] = []
    for each in _evenly([each for each in left if market.same_cohort(each.queue, one.queue)]):
        slices.append(each)
        market = market.with_use(each.queue, each.amounts, -1)
        if one.fitting(market) is not None:
            break
    for each in tuple(slices):  # of several flavours, those that do not help stay
        without = market.with_use(each.queue, each.amounts)
        if one.fitting(without) is not None:
            slices.remove(each)
            market = without
    amounts = one.fitting(market)
    return (slices, amounts) if amounts is not None else ([], None)


def _without(market: Market, slices: Iterable[Surplus]) -> Market:
    for each in slices:
        market = market.with_use(each.queue, each.amounts, -1)
    return market


def _evenly(slices: list[Surplus]) -> Iterator[Surplus]:
    """The youngest slice of the job with the most of them, again and again."""
    left = sorted(slices, key=lambda each: number_of(each.workload))
    while left:
        counts = Counter(each.job for each in left)
        job = max(sorted(counts), key=lambda each: counts[each])
        last = next(each for each in reversed(left) if each.job == job)
        left.remove(last)
        yield last


def _is_surplus(workload: Workload) -> bool:
    return is_slice(workload) and workload.has_quota and NEEDED not in workload.metadata.annotations


def _surplus(workload: Workload) -> Surplus:
    admission = workload.status.admission
    return Surplus(workload, admission.cluster_queue if admission else "", usage(workload))


def _waits(workload: Workload) -> bool:
    """Whether a Workload waits for quota, other than to let a job grow."""
    inactive = not workload.spec.active or workload.metadata.deletion_timestamp is not None
    answer = workload.condition(QUOTA_RESERVED)
    inactive = inactive or (answer is not None and answer.reason in CANNOT)
    return not (workload.has_quota or workload.is_finished or inactive or is_slice(workload))


def _quota_helps(workload: Workload) -> bool:
    """Whether Kueue would admit a Workload if more quota were idle, as far as its last answer says."""
    answer = workload.condition(QUOTA_RESERVED)
    if answer is None:
        return True
    sets = answer.message.split(UNASSIGNED)[1:]
    other = any(each in answer.message for each in MISFITS)
    return answer.reason not in USELESS and not other and all(SHORT in each for each in sets)


def _age(workload: Workload, now: datetime) -> timedelta:
    """Return how long a waiting Workload could have been made room for; less than 0: it is too early."""
    requeued = workload.condition(REQUEUED)
    times = [workload.metadata.creation_timestamp, requeued.last_transition_time if requeued else None]
    later = workload.status.requeue_state.requeue_at if workload.status.requeue_state else None
    ages = [now - each - WAITS for each in times if each]
    return min([*ages, *([now - later] if later else [])], default=timedelta(0))


def _mark(workload: Workload, market: Market, queue_of: QueueOf) -> str:
    """Return what tells a Workload from itself after a change, an admission, or a change of its queue."""
    about, evicted, own = (
        workload.metadata,
        workload.condition(EVICTED),
        market.queues.get(queue_of(workload)),
    )
    generation = own.generation if own else 0
    at = evicted.last_transition_time if evicted and evicted.status == "True" else None
    return f"{about.uid}/{about.generation}/{generation}/{at.isoformat() if at else ''}"


def _order(workload: Workload) -> tuple[int, str, str]:
    """The most important first, then the oldest."""
    at = workload.metadata.creation_timestamp
    return -(workload.spec.priority or 0), at.isoformat() if at else "", workload.metadata.name
