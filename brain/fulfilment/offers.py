"""What a job may have: its sizes, how fast it trains with each, and what that is worth. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import log
from typing import Final

from elasticjob.brain.fulfilment import state
from elasticjob.brain.fulfilment.knapsack import Choice
from elasticjob.brain.fulfilment.packing import Room
from elasticjob.brain.fulfilment.state import Job

FLOOR: Final = 0.02
"""The speed-up of a job without instances, where the power mean would otherwise be without bound."""
YOUNG: Final = 600.0
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
    keep: float = 1e-6
    """What it is worth to change nothing: a change has to bring more."""
    patience: timedelta = timedelta(minutes=30)
    """A job that waits for longer gets its least first; one that changed more recently is not suspended."""


@dataclass(frozen=True)
class Candidate:
    """A job with the speeds that it has or is expected to have, by number of instances, packed.

    `done` and `left` are work in the unit of speed × seconds: steps, records, or steps at the first batch.
    """

    job: Job
    speeds: Mapping[int, float] = field(default_factory=dict)
    done: float = 0.0
    left: float | None = None


@dataclass(frozen=True)
class Draft:
    """A job with its possible sizes and speeds, the speed of its fair share, remaining work and weight."""

    job: Job
    trained: Candidate
    sizes: tuple[int, ...]
    speeds: Mapping[int, float]
    fair: float
    left: float
    weight: float

    @property
    def key(self) -> str:
        return self.job.key

    @property
    def first(self) -> int:
        """The size that it begins with."""
        return self.sizes[0] if self.sizes else max(1, self.job.least)

    def amount(self, resource: str) -> int:
        return self.job.amount.get(resource, 0)

    def speedup(self, size: int, restart: float) -> float:
        """Return the speed against the fair share, with what it costs to change to this size."""
        speed = self.speeds[size] if size else 0.0
        if size != self.job.now and speed:
            speed = self.left / (self.left / speed + restart)
        return speed / self.fair


def draft(trained: Candidate, jobs: int, room: Room, options: Options) -> Draft:
    """Return what a job may have, one of so many that share the room."""
    job = trained.job
    sizes = job.sizes
    first = sizes.smallest
    allowed = [n for n in trained.speeds if n > 0 and sizes.clamp(n) == n <= job.ceiling]
    speeds = {n: trained.speeds[n] for n in allowed if trained.speeds[n] > 0}
    if not speeds and first <= job.most:  # nothing is known: it begins, or stays
        stays = first <= job.now == sizes.clamp(job.now) <= job.most
        speeds = {job.now if stays else first: 1.0}
    fits = int(room.fits(job.amount, job.permitted).sum())
    fair = _speed_at(speeds, max(first, fits / jobs)) if speeds else 1.0
    left = trained.left if trained.left is not None else max(trained.done, YOUNG * fair)
    weight = (
        options.short.total_seconds() / max(left / fair, options.short.total_seconds())
    ) ** options.favour
    return Draft(job, trained, tuple(sorted(speeds)), speeds, fair, max(left, 1e-9), weight)


def _speed_at(speeds: Mapping[int, float], size: float) -> float:
    """Return the speed of a size between those that are known; in proportion beyond them."""
    known = sorted(speeds)
    below = max((n for n in known if n <= size), default=known[0])
    above = min((n for n in known if n >= size), default=known[-1])
    if below >= above:
        return speeds[below] * min(1.0, size / below) if size < below else speeds[below]
    part = (size - below) / (above - below)
    return (1 - part) * speeds[below] + part * speeds[above]


def offers(
    draft: Draft, least: int, resources: Sequence[str], options: Options, now: datetime
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
        value += options.keep * draft.weight if size == job.now else 0.0
        found.append((size, Choice(tuple(size * draft.amount(name) for name in resources), value)))
    return found


def _utility(speedup: float, power: float) -> float:
    speedup = max(speedup, FLOOR)
    if power == 0:
        return log(speedup)
    return float(speedup**power) if power > 0 else -float(speedup**power)
