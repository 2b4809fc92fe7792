"""Workers: how many and how large, from nothing, from history, after a kill, and while they run.

Rows of the table in section 11 of the reference, for jobs with parameter servers and without.
"""

from __future__ import annotations

from datetime import datetime
from math import ceil
from statistics import fmean
from typing import Final

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.v1alpha1.common import PS, WORKER
from elasticjob.brain.algorithms import throughput
from elasticjob.brain.algorithms.algorithm import Group, Proposal
from elasticjob.brain.algorithms.servers import SHORT
from elasticjob.brain.algorithms.uses import (
    GIB,
    NEWEST,
    TRAIN,
    bytes_of,
    cores_of,
    first,
    means,
    memory,
    newest,
    resource,
    shares,
)
from elasticjob.brain.history import History, Limits, Role, Sample

COLD: Final = (12.0, 16.0 * GIB)
"""Cores and memory of a first worker of which nothing is known."""
SPARE: Final = 1.2
ROOMY: Final = 1.4
"""Of the cores, and of the memory, that workers of earlier jobs used at most."""
AFTER_KILL: Final = 1.2
MORE: Final = 4 * 10**9
"""Bytes beyond the last plan, after a kill."""
STEP: Final = 8 * GIB
FULL: Final = 0.95
LIGHT: Final = 0.8
"""Shares of its cores at which a server has too many workers, and up to which it can serve more."""
IDLE: Final = 0.8
"""Of its cores: what uses less would not use more."""
AT_ONCE: Final = 4
FIRST: Final = 32
FIRST_SHORT: Final = 10
"""Workers at most before the job is settled: of any job, and of a short one."""
MOST: Final = 60
SLOWER: Final = 0.9
"""Speed after a change below this share of the one before: the change did not pay."""
COUNTED: Final = 5
PAYS: Final = 0.2
"""What one more worker has to bring, as a share of what one brought before."""


def cold(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """One worker, whose use will tell the rest."""
    least = limits.roles.get(WORKER, Role()).least
    return Proposal("no job like it is known", {WORKER: Group(least, first(*COLD, limits))})


def from_history(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """What workers of completed jobs like it used; their number where the job trained fastest per worker."""
    past = [job for job in history.past if job.completed and means(job.samples, WORKER)]
    if not past:
        return None
    cores = max(max(means(job.samples, WORKER).values()) for job in past)
    size = max(max(memory(job.samples, WORKER).values()) for job in past)
    killed = max((node.bytes for job in past for node in job.killed if node.role == WORKER), default=0)
    count = past[-1].samples[-1].workers
    reason = (
        f"{len(past)} completed jobs like it used up to {cores:.3g} cores and {size / GIB:.3g} GiB a worker"
    )
    given = resource(SPARE * cores, max(ROOMY * size, AFTER_KILL * killed))
    return Proposal(f"{reason}; the last one had {count} workers", {WORKER: Group(count, given)})


def after_oom(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """A worker was killed for memory: more than any has had, here and in jobs like it."""
    killed = [node for node in history.killed if node.role != PS]
    if not killed:
        return None
    role = killed[-1].role
    used = max(memory(history.samples, role).values(), default=0.0)
    ever = [size for job in history.past for size in memory(job.samples, role).values()]
    fatal = [node.bytes for job in history.past for node in job.killed if node.role == role]
    fatal += [node.bytes for node in killed if node.role == role]
    had = max(killed[-1].bytes, bytes_of(history.resources.get(role, resource())))
    size = max(AFTER_KILL * max(fatal), max(ever, default=0.0), used, had + MORE if had else 0.0)
    if not size:
        return None
    reason = f"{killed[-1].name} was killed for memory at {had / GIB:.3g} GiB"
    return Proposal(reason, {role: Group(None, resource(None, size))})


def beside_servers(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """While parameter servers have room, more workers; fewer where one server works at its limit."""
    samples = newest(history.samples)
    busy = max(shares(samples, PS).values(), default=0.0)
    if not busy:
        return None
    count, use = samples[-1].workers, _needs(history)
    if busy > FULL:
        fewer = count - AT_ONCE if count > AT_ONCE else count
        return Proposal(f"a parameter server uses {busy:.0%} of its cores", {WORKER: Group(fewer, use)})
    if busy >= LIGHT or is_slower(history.samples):
        return None
    wanted = ceil(LIGHT / busy * count)
    if history.settled:
        wanted = min(wanted, count + AT_ONCE)
    else:
        wanted = min(wanted, FIRST_SHORT if history.total and history.total <= SHORT else FIRST)
    wanted = max(count, min(wanted, MOST))
    return Proposal(f"{count} workers use {busy:.0%} of the busiest server", {WORKER: Group(wanted, use)})


def all_reduce(history: History, limits: Limits, now: datetime) -> Proposal | None:
    """The number of workers that pays: by the fitted model where it holds, else a step from what was seen."""
    role, samples = limits.roles.get(WORKER, Role()), history.samples
    if not history.settled or not samples or samples[-1].of(PS):
        return None
    count, use = samples[-1].workers, _needs(history)
    most = _most(count, role, limits)
    model = throughput.fit(samples)
    if model is not None:
        best = throughput.best(model, range(role.least, most + 1, role.unit), PAYS)
        return Proposal(f"{model}: {best} workers pay", {WORKER: Group(best, use)})
    speeds = {size: fmean(s.samples or s.steps for s in same) for size, same in by_size(samples).items()}
    smaller = max((size for size in speeds if size < count), default=None)
    if smaller is not None:
        gain = (speeds[count] - speeds[smaller]) / (count - smaller) / (speeds[smaller] / smaller)
        if gain < PAYS:
            reason = f"each worker beyond {smaller} brought {gain:.0%} of what one brought before"
            return Proposal(reason, {WORKER: Group(smaller, use)})
    more = min(most, 2 * count) // role.unit * role.unit
    if more <= count or more in speeds or any(size > count for size in speeds):
        return Proposal(f"{count} workers pay", {WORKER: Group(None, use)}) if use else None
    return Proposal(f"{count} workers train, and there is room for more", {WORKER: Group(more, use)})


def _most(count: int, role: Role, limits: Limits) -> int:
    """Return how many workers may be tried: those that find a place, up to the user's bound."""
    room = (limits.room or {}).get(WORKER)
    most = role.most if role.most is not None else MOST
    return max(count, min(most, count + room) if room is not None else most)


def by_size(samples: tuple[Sample, ...]) -> dict[int, list[Sample]]:
    """Return samples by number of workers, the newest of each."""
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.workers, []).append(sample)
    return {size: same[-COUNTED:] for size, same in found.items()}


def is_slower(samples: tuple[Sample, ...]) -> bool:
    """Whether the job got slower at the last change of its workers: the mean of five samples on each side."""
    last = samples[-1].workers
    changed = next((i + 1 for i in reversed(range(len(samples))) if samples[i].workers != last), 0)
    before, after = samples[max(0, changed - COUNTED) : changed], samples[changed : changed + COUNTED]
    if not before or samples[changed].workers < before[-1].workers:
        return False
    return fmean(s.steps for s in after) < SLOWER * fmean(s.steps for s in before)


def _needs(history: History) -> Resources:
    """Return what a worker needs: the cores that it uses and one, its memory and a fifth.

    Nothing where it has about that, or where more cores would lie idle: a change costs a resize or a new pod.
    """
    samples = newest(history.samples)
    used, sizes = means(samples, *TRAIN), memory(samples, *TRAIN)
    if len(samples) < NEWEST or not used:
        return NOTHING
    given = history.resources.get(WORKER, NOTHING)
    had, most = cores_of(given), max(used.values())
    cores: float | None = ceil(most + 1)
    if had and (most < IDLE * had < IDLE * ceil(most + 1) or _about(ceil(most + 1), had)):
        cores = None
    size = 1.2 * max(sizes.values())
    size = min(size, bytes_of(given) + STEP) if "memory" in given else size
    return resource(cores, None if _about(size, bytes_of(given)) else size)


def _about(one: float, other: float) -> bool:
    """Whether two amounts differ by less than a quarter."""
    return bool(other) and 0.8 <= one / other <= 1.25
