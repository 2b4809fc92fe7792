"""Parameter servers: how many and how large, from nothing, from history, and from what they use.

Rows of the table in training.md of the reference design (section 11). `PS` uses are cores and bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Final

from elasticjob.api.resources import Resources
from elasticjob.api.v1alpha1.common import PS
from elasticjob.brain.algorithms.algorithm import Group, Proposal
from elasticjob.brain.algorithms.uses import (
    GIB,
    MARGIN,
    WIDEST,
    bytes_of,
    first,
    means,
    memory,
    newest,
    resource,
    shares,
    totals,
)
from elasticjob.brain.history import History, Limits, Past

COLD: Final = (4, 12.0, 16.0 * GIB)
"""Servers of which nothing is known: how many, cores and memory of each."""
MOST: Final = 15
"""Parameter servers of a job."""
SPARE: Final = 1.5
"""Of the cores that all servers of earlier jobs used."""
ROOMY: Final = 1.2
"""Of the memory that was used at most."""
HOT: Final = 0.8
FULL: Final = 0.9
"""Shares of its cores, and of its memory, beyond which a server is hot."""
STEP: Final = 8 * GIB
TARGET: Final = 32
SHORT_TARGET: Final = 10
FIRST_TARGET: Final = 20
"""Workers that servers are sized for: of a running job, of a short one, and at the first adjustment."""
SHORT: Final = timedelta(seconds=1800)
LONG: Final = timedelta(seconds=3600)
IDLE: Final = 0.4
SKEWED: Final = 0.2
LARGE: Final = 64 * GIB


def cold(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """Nothing is known: four servers that carry most jobs."""
    count, cores, size = COLD
    if limits.total:
        count = 1
    return Proposal("no job like it is known", {PS: Group(count, first(cores, size, limits))})


def from_history(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """What earlier jobs like it used: the cores of the busiest server and a margin, as many as needed."""
    past = [job for job in history.past if job.completed and means(job.samples, PS)]
    if not past:
        return None
    busiest = max(max(means(job.samples, PS).values()) for job in past)
    total = sum(totals(job.samples, PS) for job in past) / len(past)
    cores = min(ceil(busiest) + MARGIN, WIDEST)
    count = max(1, ceil(SPARE * total / cores))
    if count > MOST:
        count, cores = MOST, min(WIDEST, ceil(SPARE * total / MOST))
    largest, every = _memory(past)
    size = max(ROOMY * largest, ROOMY * every / count)
    reason = f"{_jobs(past)} used {total:.3g} cores in all, {busiest:.3g} of the busiest server"
    return Proposal(reason, {PS: Group(count, resource(cores, size))})


def _memory(past: list[Past]) -> tuple[float, float]:
    """Return the largest memory of one server, and the largest of all of one job."""
    each = [memory(job.samples, PS).values() for job in past]
    return max(max(sizes) for sizes in each), max(sum(sizes) for sizes in each)


def _jobs(past: list[Past]) -> str:
    return f"{len(past)} jobs like it" if len(past) > 1 else f"job {past[0].name} like it"


def initial(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """The first samples: servers for as many workers as the job will have."""
    samples = newest(history.samples)
    used, workers = means(samples, PS), samples[-1].workers if samples else 0
    if not used or not workers:
        return None
    target = SHORT_TARGET if history.total and history.total <= SHORT else FIRST_TARGET
    cores = min(ceil(max(used.values())) + MARGIN, WIDEST)
    most = totals(samples, PS)
    while target > workers and ceil(target / workers * most / cores) > MOST:
        target -= 1
    count = max(1, min(MOST, ceil(target / workers * most / cores)))
    size = ROOMY * max(memory(samples, PS).values())
    reason = f"{workers} workers use {most:.3g} cores of the servers: for {target} workers"
    return Proposal(reason, {PS: Group(count, resource(cores, size))})


def hot(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """A server that works at its limit: every server gets what it uses, times the workers yet to come."""
    samples = newest(history.samples)
    busy = {name: share for name, share in shares(samples, PS).items() if share > HOT}
    crowded = _crowded(history)
    if not busy and not crowded:
        return None
    nodes: dict[str, Resources] = {}
    if busy and samples[-1].workers:
        used = means(samples, PS)
        times = min(max(1.0, TARGET / samples[-1].workers), WIDEST / max(used[name] for name in busy))
        wanted = {name: min(WIDEST, ceil(mean * times)) for name, mean in used.items()}
        given = {use.name: use.cores for use in samples[-1].of(PS)}
        nodes = {name: resource(cores) for name, cores in wanted.items() if cores > given.get(name, 0.0)}
    for name, had in crowded.items():
        nodes[name] = nodes.get(name, Resources({})) | resource(None, had + STEP)
    if not nodes:
        return None
    told = [f"{name} uses {share:.0%} of its cores" for name, share in sorted(busy.items())]
    told += [f"{name} more than {FULL:.0%} of its memory" for name in sorted(crowded)]
    return Proposal("; ".join(told[:4]), nodes=nodes)


def _crowded(history: History) -> Mapping[str, int]:
    """Return the memory of each server that has used more than its share in each of the newest samples."""
    samples = newest(history.samples)
    if not samples:
        return {}
    last = {use.name: use.bytes for use in samples[-1].of(PS)}
    full = ({use.name for use in sample.of(PS) if use.memory_share > FULL} for sample in samples)
    names = set(last).intersection(*full)
    return {name: last[name] for name in names}


def idle(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """No server is hot, and some do little: they get what they use, while the job still runs for long."""
    samples = newest(history.samples)
    busy = shares(samples, PS)
    if not busy or max(busy.values()) > HOT or history.remaining is None or history.remaining < LONG:
        return None
    wide = any(use.cpu >= HOT * WIDEST for use in samples[-1].of(PS))
    if not wide and samples[-1].workers < TARGET:
        return None
    most, sizes = means(samples, PS), memory(samples, PS)
    given = {use.name: use.cores for use in samples[-1].of(PS)}
    nodes = {
        name: resource(ceil(most[name]) + MARGIN, ROOMY * sizes[name])
        for name, share in busy.items()
        if share < IDLE and ceil(most[name]) + MARGIN < given[name]
    }
    if not nodes:
        return None
    return Proposal(f"{len(nodes)} servers use less than {IDLE:.0%} of their cores", nodes=nodes)


def after_oom(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """A server was killed for memory: twice as much, or twice as many."""
    killed = [node for node in history.killed if node.role == PS]
    if not killed:
        return None
    samples = newest(history.samples)
    sizes = memory(samples, PS)
    had = max(killed[-1].bytes, bytes_of(history.resources.get(PS, Resources({}))))
    count = history.counts.get(PS, 1)
    name = killed[-1].name
    killed_at = f"{name} was killed at {had / GIB:.3g} GiB"
    most = max(sizes.values(), default=0.0)
    if not most and had < LARGE:
        return Proposal(killed_at, {PS: Group(None, resource(None, 2 * had))})
    if not most:
        return Proposal(killed_at, {PS: Group(min(MOST, 2 * count))})
    mean = sum(sizes.values()) / len(sizes)
    if (most - mean) / most > SKEWED or count >= MOST:
        reason = f"{killed_at}; servers use {most / GIB:.3g} GiB at most, {mean / GIB:.3g} on average"
        return Proposal(reason, {PS: Group(None, resource(None, max(2 * most, had * ROOMY)))})
    reason = f"{killed_at}; all servers use about {mean / GIB:.3g} GiB: the same on twice as many"
    return Proposal(reason, {PS: Group(min(MOST, 2 * count))})
