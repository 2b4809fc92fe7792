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
more than their least.
Assumptions: a job whose remaining work is not known takes as long as it has taken (heavy tails, as in
Tiresias, NSDI 2019); a job's instances are packed on few machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf, log
from typing import Final

from elasticjob.brain.fulfilment import state
from elasticjob.brain.fulfilment.knapsack import Choice, choose
from elasticjob.brain.fulfilment.packing import Places, Room, available, pack
from elasticjob.brain.fulfilment.state import PODS, Cluster, Delta, Job, Plan, Waiting

FLOOR: Final = 0.02
"""The speed-up of a job without instances, where the power mean would otherwise be without bound."""
KEEP: Final = 1e-6
"""What it is worth to change nothing, where nothing else decides."""
YOUNG: Final = 60.0
"""Seconds of training that are assumed at least, of a job whose remaining work is not known."""


@dataclass(frozen=True)
class Options(state.Options):
    """The settings of the goodput planner; see the module."""

    power: float = -1.0
    """p: -1 is fair (harmonic mean), 1 the sum of speed-ups, which lets slow jobs wait."""
    favour: float = 0.0
    """How much short jobs are favoured: weights are (remaining time at the fair share)^-favour."""
    short: timedelta = timedelta(hours=1)
    """Jobs with less to do than this are equally short."""
    restart: timedelta = timedelta(seconds=30)
    """How long a job stands still when its size changes."""
    suspend: bool = False
    """Whether running jobs may lose all instances for others."""
    patience: timedelta = timedelta(minutes=30)
    """A job that waits for longer gets its least first; one that changed more recently is not suspended."""


@dataclass(frozen=True)
class Trained:
    """A job with the speeds that it has or is expected to have, by number of instances, packed.

    `done` and `left` are work in the unit of speed × seconds: steps, records, or steps at the first batch.
    """

    job: Job
    speeds: Mapping[int, float] = field(default_factory=dict)
    done: float = 0.0
    left: float | None = None

    def speed(self, size: int) -> float:
        return self.speeds.get(size, 0.0)


@dataclass(frozen=True)
class Share:
    """What a job has after a plan: its size, the speed of a fair share, its own against that, its fairness.

    `rho` is the expected time from submission to the end, divided by that with a fair share all the time
    (finish-time fairness, Themis, NSDI 2020); more than 1 is worse than fair, infinite for a job that waits.
    """

    size: int
    fair: float
    speedup: float
    rho: float


@dataclass(frozen=True)
class Planned:
    """A plan with the place of every instance, and each job's share."""

    plan: Plan
    places: Places
    shares: Mapping[str, Share]


def plan(cluster: Cluster, jobs: Sequence[Trained], options: Options, now: datetime) -> Plan:
    """Return what changes, and who waits for their minimum."""
    return drafted(cluster, jobs, options, now).plan


def drafted(cluster: Cluster, jobs: Sequence[Trained], options: Options, now: datetime) -> Planned:
    """Return the plan with the place of every instance, and each job's share."""
    jobs = sorted(jobs, key=lambda each: each.job.key)
    room = available(cluster, [each.job for each in jobs])
    drafts = [_draft(each, len(jobs), room, options) for each in jobs]
    sizes = _sizes(cluster, room, drafts, options, now)
    places = pack(cluster, [each.job for each in jobs], sizes)
    return _told(drafts, places, now)


@dataclass(frozen=True)
class _Draft:
    """A job with its possible sizes and speeds, the speed of its fair share, remaining work and weight."""

    job: Job
    trained: Trained
    sizes: tuple[int, ...]
    speeds: Mapping[int, float]
    fair: float
    left: float
    weight: float

    def speedup(self, size: int, restart: float) -> float:
        """Return the speed against the fair share, with what it costs to change to this size."""
        speed = self.speeds[size] if size else 0.0
        if size != self.job.now and speed:
            speed = self.left / (self.left / speed + restart)
        return speed / self.fair


def _draft(trained: Trained, jobs: int, room: Room, options: Options) -> _Draft:
    job = trained.job
    first = job.step * max(1, -(-job.least // job.step))
    allowed = [n for n in trained.speeds if job.least <= n <= job.most and n % job.step == 0 and n > 0]
    speeds = {n: trained.speeds[n] for n in allowed if trained.speeds[n] > 0}
    if not speeds and first <= job.most:  # nothing is known: it begins, or stays
        stays = job.now % job.step == 0 and first <= job.now <= job.most
        speeds = {job.now if stays else first: 1.0}
    fits = int(room.fits(job.amount, job.permitted).sum())
    fair = _speed_at(speeds, max(first, fits / jobs)) if speeds else 1.0
    left = trained.left if trained.left is not None else max(trained.done, YOUNG * fair)
    weight = (
        options.short.total_seconds() / max(left / fair, options.short.total_seconds())
    ) ** options.favour
    return _Draft(job, trained, tuple(sorted(speeds)), speeds, fair, max(left, 1e-9), weight)


def _speed_at(speeds: Mapping[int, float], size: float) -> float:
    """Return the speed of a size between those that are known; in proportion beyond them."""
    known = sorted(speeds)
    below = max((n for n in known if n <= size), default=known[0])
    above = min((n for n in known if n >= size), default=known[-1])
    if below >= above:
        return speeds[below] * min(1.0, size / below) if size < below else speeds[below]
    part = (size - below) / (above - below)
    return (1 - part) * speeds[below] + part * speeds[above]


def _sizes(
    cluster: Cluster, room: Room, drafts: Sequence[_Draft], options: Options, now: datetime
) -> dict[str, list[int]]:
    """Return the sizes for each job, the wanted one first, then what to take if it finds no places.

    Higher priorities choose first, from what lower ones do not have to keep.
    """
    resources = _limited(room, drafts)
    total = {name: int(room.free[:, room.resources.index(name)].sum()) for name in resources}
    total = {name: _limit(name, total[name], cluster, options) for name in resources}
    must = _must(drafts, total, options, now)
    chosen: dict[str, list[int]] = {}
    for priority in sorted({each.job.priority for each in drafts}, reverse=True):
        same = [each for each in drafts if each.job.priority == priority]
        lower = [each for each in drafts if each.job.priority < priority]
        kept = {
            name: sum(must[each.job.key] * each.job.amount.get(name, 0) for each in lower)
            for name in resources
        }
        for least in (must, dict.fromkeys(must, 0)):
            offers = [_offers(each, least[each.job.key], resources, options, now) for each in same]
            picked = choose(
                [[choice for _, choice in each] for each in offers], [total[n] - kept[n] for n in resources]
            )
            if picked is not None:
                break
        for each, offered, at in zip(same, offers, picked or [0] * len(same), strict=True):
            size = offered[at][0] if picked is not None else 0
            smaller = [n for n, _ in sorted(offered, key=lambda o: -o[0]) if n < size]
            chosen[each.job.key] = [size, *smaller, *([0] if size else [])]
            for name in resources:
                total[name] -= size * each.job.amount.get(name, 0)
    return chosen


def _limited(room: Room, drafts: Sequence[_Draft]) -> tuple[str, ...]:
    """Return the resources that bound the sizes: of which all jobs together could want more than there is, and
    which are not kept by keeping another."""
    wanted, free = (
        dict.fromkeys(room.resources, 0),
        dict(zip(room.resources, room.free.sum(axis=0), strict=True)),
    )
    for each in drafts:
        for name in room.resources:
            wanted[name] += each.job.amount.get(name, 0) * max(each.sizes, default=0)
    limited = [name for name in room.resources if wanted[name] > free[name] and name != PODS]
    amounts = {tuple(each.job.amount.get(name, 0) for name in limited) for each in drafts}
    for at, name in reversed(list(enumerate(limited))):
        others = [index for index, other in enumerate(limited) if other != name and other in free]
        if any(all(each[at] * free[limited[o]] <= each[o] * free[name] for each in amounts) for o in others):
            del free[name]
    return tuple(name for name in limited if name in free)


def _limit(name: str, free: int, cluster: Cluster, options: Options) -> int:
    """Return what jobs may have of a resource: what is free, less what the limit keeps free of the total."""
    total = sum(each.total.get(name, 0) for each in cluster.machines)
    return max(0, free - (total - int(total * options.limits.get(name, 1))))


def _must(
    drafts: Sequence[_Draft], total: Mapping[str, int], options: Options, now: datetime
) -> dict[str, int]:
    """Return how many instances each job has to have: its least if it runs, or has waited for too long."""
    must = dict.fromkeys((each.job.key for each in drafts), 0)
    left = dict(total)
    for each in sorted(drafts, key=lambda each: (-each.job.priority, not each.job.now, _since(each.job))):
        recent = now - _since(each.job) < options.patience
        held = each.job.now > 0 and (not options.suspend or (recent and each.job.changed is not None))
        waits = each.job.now == 0 and not recent
        least = each.sizes[0] if each.sizes and (held or waits) else 0
        needs = {name: least * each.job.amount.get(name, 0) for name in left}
        if all(needs[name] <= left[name] for name in left):
            must[each.job.key] = least
            left = {name: left[name] - needs[name] for name in left}
    return must


def _since(job: Job) -> datetime:
    return job.changed or job.submitted


def _offers(
    draft: _Draft, least: int, resources: Sequence[str], options: Options, now: datetime
) -> list[tuple[int, Choice]]:
    """Return the sizes that a job may have now, each with what it takes and what it is worth."""
    job = draft.job
    quiet = min(options.settle * 2 ** min(job.withdrawn, 32), max(options.settle, options.longest))
    still = bool(job.stays) or (job.changed is not None and now - job.changed < quiet)
    sizes = [n for n in draft.sizes if n >= least and not (still and n > max(job.now, least))]
    if not least or not sizes:
        sizes = [0, *sizes]
    restart = options.restart.total_seconds()
    found = []
    for size in sizes:
        value = draft.weight * _utility(draft.speedup(size, restart), options.power)
        value += KEEP * draft.weight if size == job.now else 0.0
        found.append((size, Choice(tuple(size * job.amount.get(name, 0) for name in resources), value)))
    return found


def _utility(speedup: float, power: float) -> float:
    speedup = max(speedup, FLOOR)
    if power == 0:
        return log(speedup)
    return float(speedup**power) if power > 0 else -float(speedup**power)


def _told(drafts: Sequence[_Draft], places: Places, now: datetime) -> Planned:
    deltas, waiting, shares = [], [], {}
    for each in drafts:
        job, size = each.job, len(places[each.job.key])
        share = shares[job.key] = _share(each, size, now)
        if size != job.now:
            deltas.append(Delta(job.key, job.now, size, _reason(each, size, share)))
        if size < each.sizes[0] if each.sizes else True:
            missing = max(job.least, 1) - size
            waiting.append(Waiting(job.key, missing, _waits(each, missing)))
    return Planned(Plan(tuple(deltas), tuple(waiting)), places, shares)


def _share(draft: _Draft, size: int, now: datetime) -> Share:
    speed = draft.speeds.get(size, 0.0)
    age = (now - draft.job.submitted).total_seconds()
    alone = (draft.trained.done + draft.left) / draft.fair
    return Share(size, draft.fair, speed / draft.fair, (age + draft.left / speed) / alone if speed else inf)


def _reason(draft: _Draft, size: int, share: Share) -> str:
    """Return the sentence of a delta."""
    job, before = draft.job, draft.job.now
    told = f"{share.speedup:.2f} times the speed of its fair share, rho {share.rho:.2f}"
    if not size:
        return f"{job.key} is suspended: its {_instances(before)} speed up other jobs more"
    if not before:
        return f"{job.key} starts with {_instances(size)}: {told}"
    had = draft.speeds.get(before)
    faster = f"{draft.speeds[size] / had:.2f} times as fast as now, " if had else ""
    if size > before:
        return f"{job.key} grows from {before} to {_instances(size)}: {faster}{told}"
    why = (
        "which speed up other jobs more"
        if had and draft.speeds[size] <= had
        else "without which it is faster"
    )
    return f"{job.key} gives up {_instances(before - size)} of {before}, {why}: {faster}{told}"


def _waits(draft: _Draft, missing: int) -> str:
    return f"{draft.job.key} has no place for {missing} of its minimum of {max(draft.job.least, 1)}"


def _instances(number: int) -> str:
    return f"{number} instance" if number == 1 else f"{number} instances"
