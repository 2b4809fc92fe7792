"""The goodput planner: shares a cluster among elastic jobs so that they train fast and none starves. Pure.

    plan = plan(cluster, [Trained(job, speeds={1: 1.0, 2: 1.9, 4: 3.1}, done=600.0)], Options(), now)
    plan.deltas   # (Delta("default/mnist", 1, 4, "default/mnist grows from 1 to 4 instances: …"), …)

After Pollux (Qiao et al., OSDI 2021), section 4.2. The speed of a job is its goodput where its trainer
reports the gradient's noise (efficiency.py), its throughput elsewhere. Sizes are chosen that maximise

    Σ weight · utility(speed-up),    utility(x) = sign(p)·x^p, log x for p = 0

which is to maximise the weighted power mean of the speed-ups. The speed-up is against a fair share of the
cluster. A new size counts with the time that it costs: remaining / (remaining / speed + restart), so a change
is made only if it pays within the time that the job is expected to take. Weights favour what will end soon.

Guarantees: equal input, equal plan; sizes within [least, most], multiples of the step; no machine above its
capacity; the plan for the applied plan is empty; no job waits for longer than `patience` while others have
more than their least, unless free room is scattered over machines that are too small for its instances.
Assumptions: a job whose remaining work is not known takes as long as it has taken (heavy tails, as in
Tiresias, NSDI 2019); a job's instances are packed on few machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from elasticjob.brain.fulfilment.knapsack import choose
from elasticjob.brain.fulfilment.offers import Candidate, Draft, Options, draft, offers
from elasticjob.brain.fulfilment.packing import Places, Room, available, pack
from elasticjob.brain.fulfilment.shares import Share, reason, share, waits
from elasticjob.brain.fulfilment.state import PODS, Cluster, Delta, Job, Plan, Waiting

ROUNDS: Final = 8
"""A plan has one round where all jobs find places for the sizes that were chosen. Else the plan for the
applied plan is made at once, until that is empty: room that one job finds too small may serve another one."""


@dataclass(frozen=True)
class Placement:
    """A plan with the place of every instance, and each job's share."""

    plan: Plan
    places: Places
    shares: Mapping[str, Share]


def plan(cluster: Cluster, jobs: Sequence[Candidate], options: Options, now: datetime) -> Plan:
    """Return what changes, and who waits for their minimum."""
    return place_all(cluster, jobs, options, now).plan


def place_all(cluster: Cluster, jobs: Sequence[Candidate], options: Options, now: datetime) -> Placement:
    """Return the plan with the place of every instance, and each job's share."""
    jobs = sorted(jobs, key=lambda each: each.job.key)
    room = available(cluster, [each.job for each in jobs])
    first = drafts = [draft(each, len(jobs), room, options) for each in jobs]
    places: Places = {}
    for _ in range(ROUNDS):
        sizes = _sizes(cluster, room, drafts, options, now)
        places = pack(room, [each.job for each in drafts], sizes)
        if all(len(places[each.key]) == sizes[each.key][0] for each in drafts):
            break
        after = [_with_places(each, places[each.key], options) for each in drafts]
        if after == [each.trained for each in drafts]:
            break
        drafts = [draft(each, len(jobs), room, options) for each in after]
    return _describe(first, places, options, now)


def _with_places(draft: Draft, places: tuple[str, ...], options: Options) -> Candidate:
    """Return a job after a plan by which its instances have these places."""
    size = _after(draft, len(places), options)
    machines = (*places, *[None] * (size - len(places)))
    return replace(draft.trained, job=replace(draft.job, now=size, machines=machines))


def _sizes(
    cluster: Cluster, room: Room, drafts: Sequence[Draft], options: Options, now: datetime
) -> dict[str, list[int]]:
    """Return the sizes for each job, the wanted one first, then what to take if it finds no places.

    Higher priorities choose first, from what lower ones do not have to keep.
    """
    left = _limits(drafts, _capacity(cluster, room, options))
    must = _must(drafts, left, options, now)
    chosen: dict[str, list[int]] = {}
    for priority in sorted({each.job.priority for each in drafts}, reverse=True):
        same = [each for each in drafts if each.job.priority == priority]
        lower = [each for each in drafts if each.job.priority < priority]
        kept = {name: sum(must[each.key] * each.amount(name) for each in lower) for name in left}
        offered = [offers(each, must[each.key], tuple(left), options, now) for each in same]
        choices = [[choice for _, choice in each] for each in offered]
        picked = choose(choices, [left[name] - kept[name] for name in left])
        if picked is None:
            raise RuntimeError(f"{len(same)} jobs of priority {priority} do not fit with what they must have")
        for each, sizes, at in zip(same, offered, picked, strict=True):
            size = sizes[at][0]
            chosen[each.key] = [size, *sorted({0, *(n for n, _ in sizes if n < size)} - {size}, reverse=True)]
            left = {name: amount - size * each.amount(name) for name, amount in left.items()}
    return chosen


def _capacity(cluster: Cluster, room: Room, options: Options) -> dict[str, int]:
    """Return what the jobs may have of each resource: what is free, less what its limit keeps free."""
    free = {name: int(room.free[:, at].sum()) for at, name in enumerate(room.resources)}
    total = {name: sum(each.total.get(name, 0) for each in cluster.machines) for name in free}
    kept = {name: total[name] - int(total[name] * options.limits.get(name, 1)) for name in free}
    return {name: max(0, free[name] - kept[name]) for name in free}


def _limits(drafts: Sequence[Draft], capacity: Mapping[str, int]) -> dict[str, int]:
    """Return the capacities that bound the sizes.

    These are all of which the jobs could want more than there is, but none that keeping another one keeps.
    """
    wanted = {
        name: sum(each.amount(name) * max(each.sizes, default=0) for each in drafts) for name in capacity
    }
    limited = [name for name in capacity if wanted[name] > capacity[name] and name != PODS]
    amounts = {tuple(each.amount(name) for name in limited) for each in drafts}
    bounds = dict(enumerate(limited))
    for at, name in reversed(list(enumerate(limited))):
        others = [other for other in bounds if other != at]
        if any(
            all(each[at] * capacity[limited[other]] <= each[other] * capacity[name] for each in amounts)
            for other in others
        ):
            del bounds[at]
    return {name: capacity[name] for name in bounds.values()}


def _must(
    drafts: Sequence[Draft], capacity: Mapping[str, int], options: Options, now: datetime
) -> dict[str, int]:
    """Return how many instances each job has to have: its least if it runs, or has waited for too long."""
    must, left = dict.fromkeys((each.key for each in drafts), 0), dict(capacity)
    for each in sorted(drafts, key=lambda each: (not each.job.now, -each.job.priority, _since(each.job))):
        recent, began = now - _since(each.job) < options.patience, each.job.changed is not None
        has_to = (not options.suspend or (recent and began)) if each.job.now else not recent
        least = each.first if has_to and each.sizes else 0
        if all(least * each.amount(name) <= left[name] for name in left):
            must[each.key] = least
            left = {name: amount - least * each.amount(name) for name, amount in left.items()}
    return must


def _since(job: Job) -> datetime:
    return job.changed or job.submitted


def _describe(drafts: Sequence[Draft], places: Places, options: Options, now: datetime) -> Placement:
    shares = {each.key: share(each, len(places[each.key]), now) for each in drafts}
    deltas = tuple(
        Delta(each.key, each.job.now, after, reason(each, after, shares[each.key]))
        for each in drafts
        if (after := _after(each, shares[each.key].size, options)) != each.job.now
    )
    waiting = tuple(
        Waiting(each.key, each.first - size, waits(each, each.first - size))
        for each in drafts
        if (size := shares[each.key].size) < each.first
    )
    return Placement(Plan(deltas, waiting), places, shares)


def _after(draft: Draft, size: int, options: Options) -> int:
    """Return the desired size of a job that has places for `size` instances.

    Without places for its least it waits: with pods that are pending if it has some, none if it is suspended.
    """
    if size >= draft.first or not draft.job.now or (options.suspend and not size):
        return size if size >= draft.first else 0
    return draft.job.now if draft.job.now in draft.sizes else draft.first
