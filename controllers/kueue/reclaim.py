"""Which slices are given back for Workloads that wait: for those that would then fit, and no more. Pure.

Kueue takes slices back itself where its policies let it preempt. This is for where they do not: whoever waits
is more important than nodes beyond a job's minimum. Of the jobs that could give, the one with the most slices
gives its youngest, so that they give evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.resources import Resources
from elasticjob.controllers.kueue.cohorts import Amounts
from elasticjob.controllers.kueue.demand import is_slice, job_named, number_of
from elasticjob.controllers.kueue.quota import Market, needs, usage
from elasticjob.controllers.kueue.workload import QUOTA_RESERVED, REQUEUED, Workload

WAITS: Final = timedelta(seconds=2)
"""How long a Workload waits before others make room: Kueue may be about to admit it."""

MOST_SERVED: Final = 8
"""Workloads of one queue for which room is made at one time, the most important first."""
FORGOTTEN: Final = timedelta(seconds=30)
"""How long a Workload that would fit keeps others from growing: Kueue does not admit it, for its reasons."""
CANNOT: Final = frozenset({"Inadmissible", "Misconfigured", "Suspended"})
"""Kueue's reasons for Workloads that no free quota would let in."""

QueueOf = Callable[[Workload], str]


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


def job_of(workload: Workload) -> tuple[str, str]:
    """Return namespace and name of the job that a Workload is for."""
    return workload.metadata.namespace, job_named(workload)


def giving(
    market: Market, workloads: Iterable[Workload], queue_of: QueueOf, now: datetime
) -> tuple[frozenset[tuple[str, str]], timedelta | None]:
    """Return namespace and name of the slices to give back, and when to look again."""
    every = tuple(workloads)
    again = min((left for each in every if (left := _patience(each, now)) > timedelta(0)), default=None)
    waiting = [each for each in every if _waits(each) and _patience(each, now) <= timedelta(0)]
    waiting = _served(waiting, {job_of(each) for each in every if each.reserved}, queue_of)
    if not waiting:
        return frozenset(), again
    surplus = [_surplus(each) for each in every if is_slice(each) and each.reserved]
    for each in surplus:
        if each.workload.leaving:  # what is on its way back will be idle
            market = market.with_use(each.queue, each.amounts, -1)
    usable = [each for each in surplus if each.workload.admitted]
    chosen: list[Surplus] = []
    for one in waiting:
        given, with_it = _given(market, usable, queue_of(one), needs(one.spec.pod_sets))
        if with_it is None:
            continue
        market = with_it
        chosen += given
        usable = [each for each in usable if each not in given]
    return frozenset((s.workload.metadata.namespace, s.workload.metadata.name) for s in chosen), again


def claimed(market: Market, workloads: Iterable[Workload], queue_of: QueueOf) -> Market:
    """Return the market in which slices that wait have what they would get."""
    for each in workloads:
        if is_slice(each) and each.pending:
            queue = queue_of(each)
            if (amounts := market.assignment(queue, needs(each.spec.pod_sets))) is not None:
                market = market.with_use(queue, amounts)
    return market


def crowds(
    market: Market, empty: Market, workloads: Iterable[Workload], queue_of: QueueOf, now: datetime
) -> frozenset[str]:
    """Return the queues in whose cohort a Workload waits that could ever be admitted: no job grows there.

    What is idle then is not enough for it, and will be with what comes free next. One that would fit, and
    waits even so, is forgotten after a while: Kueue knows why.
    """
    waits = {
        queue_of(each)
        for each in workloads
        if _waits(each)
        and _could(empty, queue_of(each), each)
        and not (_patience(each, now) < WAITS - FORGOTTEN and _could(market, queue_of(each), each))
    }
    return frozenset(q for q in market.queues if any(market.same_cohort(q, other) for other in waits))


def _could(empty: Market, queue: str, workload: Workload) -> bool:
    return empty.assignment(queue, needs(workload.spec.pod_sets)) is not None


def _given(
    market: Market, left: list[Surplus], queue: str, asked: Resources
) -> tuple[list[Surplus], Market | None]:
    """Return the fewest slices with which a Workload fits, and the market after that; None if none do."""

    def fits(found: Market) -> Amounts | None:
        return found.assignment(queue, asked)

    if (amounts := fits(market)) is not None:
        return [], market.with_use(queue, amounts)
    usable = [each for each in left if market.same_cohort(each.queue, queue)]
    if fits(_without(market, usable)) is None:
        return [], None
    given: list[Surplus] = []
    for each in _evenly(usable):
        given.append(each)
        market = market.with_use(each.queue, each.amounts, -1)
        if fits(market) is not None:
            break
    for each in tuple(given):  # of several flavours, those that do not help stay
        without = market.with_use(each.queue, each.amounts)
        if fits(without) is not None:
            given.remove(each)
            market = without
    amounts = fits(market)
    return (given, market.with_use(queue, amounts)) if amounts is not None else ([], None)


def _served(waiting: Iterable[Workload], have: Container[object], queue_of: QueueOf) -> list[Workload]:
    """Return the Workloads for which room is made: not those of jobs that wait for another base of theirs."""
    counts, found = Counter[str](), list[Workload]()
    for each in sorted(waiting, key=_order):
        counts[queue_of(each)] += 1
        if counts[queue_of(each)] <= MOST_SERVED and not (job_named(each) and job_of(each) in have):
            found.append(each)
    return found


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


def _surplus(workload: Workload) -> Surplus:
    admission = workload.status.admission
    return Surplus(workload, admission.cluster_queue if admission else "", usage(workload))


def _waits(workload: Workload) -> bool:
    """Whether a Workload waits for quota, other than to let a job grow."""
    inactive = not workload.spec.active or workload.metadata.deletion_timestamp is not None
    reserved = workload.condition(QUOTA_RESERVED)
    inactive = inactive or (reserved is not None and reserved.reason in CANNOT)
    return not (workload.reserved or workload.finished or inactive or is_slice(workload))


def _patience(workload: Workload, now: datetime) -> timedelta:
    """Return how long a waiting Workload is not yet made room for."""
    if not _waits(workload):
        return timedelta(0)
    requeued = workload.condition(REQUEUED)
    times = [workload.metadata.creation_timestamp, requeued.last_transition_time if requeued else None]
    left = [WAITS - (now - each) for each in times if each]
    later = workload.status.requeue_state.requeue_at if workload.status.requeue_state else None
    return max([*left, *([later - now] if later else [])], default=timedelta(0))


def _order(workload: Workload) -> tuple[int, str, str]:
    """The most important first, then the oldest."""
    at = workload.metadata.creation_timestamp
    return -(workload.spec.priority or 0), at.isoformat() if at else "", workload.metadata.name
