"""Who hangs: which workers keep the others waiting, from where each says it is.

1. A worker waits if it is in a collective, wherever that is (torch's flight recorder knows), if it reduces,
or waits for the others at their first step; it acts otherwise. One that reduces acts, too, if it is in none,
and has not begun the one in which another of its group is. All wait for those that act: a hang is found when
each of these has acted for longer than it may.
2. How long that is depends on what it does. A worker that is stopped (SIGSTOP), or that neither computes nor
reads anything in its step, may do so for a few seconds beyond three usual steps. One that waits for records,
storage, a socket or a process, or computes, may only be slow: it has minutes, and is named as late before.
3. Before its first step in a world and between two steps a worker may take any time in which it computes or
reads: it compiles, evaluates, saves.
4. If all wait, those that are a step behind hang. If none is behind, a collective hangs. Whose fault that is
cannot be told, so the bound is longer, and the youngest worker is started again, which ends the collective;
unless some compute, such as a backward pass that compiles: these act. If members of a group are in different
collectives at the same number, the bound is that of a step: they will never end.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import inf
from statistics import median
from typing import Final, NamedTuple

from elasticjob.api.rpc.nodes import Awaits, Collective, Doing, WorkerState
from elasticjob.master.state.job import Limits

FIRST: Final = 30.0  # seconds, instead of three steps whose usual duration is not known yet
STILL: Final = 2.5  # seconds without computing and reading: a worker that waits for nothing
COMPUTES: Final = 0.5  # cores of a worker that computes, as an agent knows it that does not say `still`
LATE: Final = 30.0  # seconds after which a worker that may only be slow is named


class Seen(NamedTuple):
    """A worker of the world, and how old its state is in seconds."""

    node: str
    rank: int
    state: WorkerState
    age: float = 0.0

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped."""
        return self.state.stopped > 0

    @property
    def waits(self) -> bool:
        """Whether it waits for the others."""
        return (self.state.doing in WAITS or self.state.collective is not None) and not self.is_stopped

    @property
    def since(self) -> float:
        """How long it has done the same, been in the same collective, or been stopped."""
        inside = self.state.collective
        done = min(self.state.since, inside.since) if inside else self.state.since
        return (self.state.stopped or done) + self.age

    @property
    def still(self) -> float:
        """How long it has computed and read nothing."""
        if self.state.still is None:
            return 0.0 if self.state.cores >= COMPUTES else self.since
        return self.state.still + self.age if self.state.still >= STILL else self.state.still

    def has_missed(self, other: Seen) -> bool:
        """Whether it is in no collective, and has not begun the one of their group in which another is."""
        theirs, mine = other.state.collective, self.state
        if theirs is None or not theirs.seq or mine.collective is not None:
            return False
        return dict(mine.collectives).get(theirs.group, theirs.seq) < theirs.seq

    @property
    def moves(self) -> bool:
        """Whether it computes or reads."""
        return self.still < STILL


class Case(NamedTuple):
    """A worker that others wait for: what it does, for how long, and how long it may; in seconds."""

    worker: Seen
    does: str
    seconds: float
    limit: float

    @property
    def over(self) -> bool:
        """Whether that is too long."""
        return self.seconds > self.limit


class Hung(NamedTuple):
    """Workers that hang, in a sentence."""

    workers: tuple[Seen, ...]
    sentence: str


WAITS: Final = frozenset({Doing.REDUCING, Doing.WAITING})
NOTHING: Final = "neither computes nor reads"
BETWEEN: Final = frozenset({Doing.OUTSIDE, Doing.ENDED, Doing.STARTING})


class Scene:
    """The workers of a world at one time, and the bounds that follow from their usual step."""

    def __init__(self, workers: Sequence[Seen], limits: Limits) -> None:
        self.workers, self.limits, self.floor = workers, limits, limits.hang.total_seconds()
        known = [each.state.usual for each in workers if each.state.usual]
        self.known, self.usual = bool(known), median(known) if known else 0.0
        self.patience = self.floor + (3 * self.usual if known else FIRST)
        self.waiting = [each for each in workers if each.waits and not any(map(each.has_missed, workers))]
        self.begun = [each.state.idle + each.age for each in workers if each.state.idle is not None]

    @property
    def steps(self) -> bool:
        """Whether a worker has ended a step lately, or none waits."""
        return not self.waiting or (bool(self.begun) and min(self.begun) <= self.patience)

    def cases(self) -> list[Case]:
        """Return those that the others wait for; none if all wait for each other."""
        acting = [self.case(worker) for worker in self.workers if worker not in self.waiting]
        if acting or len(self.begun) < len(self.workers):
            return acting
        least, most = (choose(worker.state.step for worker in self.workers) for choose in (min, max))
        if least < most:
            return [self.behind(worker) for worker in self.waiting if worker.state.step == least]
        computing = [worker for worker in self.workers if worker.moves]
        return [self.behind(each) for each in computing] if len(computing) < len(self.workers) else []

    def case(self, worker: Seen) -> Case:
        """Return what a worker does that acts, and how long it may."""
        waits, state = self.limits.waits, worker.state
        if worker.is_stopped:
            limit = self.patience if self.known else self.floor
            return Case(worker, "is stopped (SIGSTOP)", worker.since, limit)
        if state.doing in BETWEEN:
            return Case(worker, f"{NOTHING} between two steps", worker.still, seconds(waits.outside))
        if state.idle is None:
            return Case(worker, f"{NOTHING} in its first step", worker.still, seconds(waits.first))
        if state.doing is Doing.READING:
            return Case(worker, "waits for its records", worker.since, seconds(waits.reading))
        if state.awaits is Awaits.DATA and not worker.moves:
            return Case(worker, "waits for data in its step", worker.since, seconds(waits.reading))
        return self.behind(worker)

    def behind(self, worker: Seen) -> Case:
        """Return what a worker does in a step that the others have ended for their part."""
        waits = self.limits.waits
        if worker.state.awaits is Awaits.STORAGE:
            return Case(worker, "waits for storage", worker.since, seconds(waits.reading))
        if worker.moves:
            return Case(worker, "computes in its step", worker.since, seconds(waits.computing))
        does = "reduces" if worker in self.waiting else f"{NOTHING} in its step"
        return Case(worker, does, worker.since, self.patience - self.usual)

    def stuck(self) -> float | None:
        """Return how long all have waited for each other if that is too long, else None."""
        waits, workers = self.limits.waits, self.workers
        if len(workers) < 2:
            return None
        if len(self.begun) < len(workers):
            waited = min(worker.still for worker in workers)
            return waited if waited > seconds(waits.first) else None
        waited = min(*self.begun, *(worker.since for worker in workers))
        if self.mismatch():
            return waited if waited > self.patience - self.usual else None
        spin = all(worker.moves for worker in workers)  # NCCL does, and so does a backward pass that compiles
        bound = max(
            seconds(waits.collective),
            seconds(waits.computing) if spin and not self.is_one_collective() else 0.0,
        )
        return waited if waited > bound + 10 * self.usual else None

    def is_one_collective(self) -> bool:
        """Whether all are in the same collective."""
        inside = {(each.group, each.seq) for worker in self.workers if (each := worker.state.collective)}
        return len(inside) == 1 and all(worker.state.collective for worker in self.workers)

    def mismatch(self) -> str:
        """Return in a sentence which members of a group are in different collectives, empty if none are."""
        first: dict[tuple[str, int], tuple[Seen, Collective]] = {}
        for worker in self.waiting:
            inside = worker.state.collective
            if inside is None or not inside.seq:
                continue
            other, theirs = first.setdefault((inside.group, inside.seq), (worker, inside))
            if (theirs.name, theirs.size) != (inside.name, inside.size):
                return (
                    f"rank {other.rank} is in {describe(theirs)} and rank {worker.rank} in "
                    f"{describe(inside)}, each as number {inside.seq} of {inside.group}: the script makes "
                    "them differ, which no restart mends"
                )
        return ""

    def where(self, but: Sequence[Seen] = ()) -> str:
        """Return in which collective some wait, the longest first; empty if that is not known."""
        known = [each for each in self.waiting if each not in but and each.state.collective]
        longest = max(known, key=lambda worker: worker.since, default=None)
        inside = longest and longest.state.collective
        return f" in {inside.name} of {inside.group}" if inside else ""


def find(workers: Sequence[Seen], limits: Limits) -> Hung | None:
    """Return the workers that hang, None if none does."""
    scene = Scene(workers, limits)
    if scene.steps:
        return None
    cases = scene.cases()
    if cases:
        return blame(cases, scene) if all(case.over for case in cases) and has_waited(scene, cases) else None
    if (waited := scene.stuck()) is None:
        return None
    youngest = max(workers, key=lambda worker: worker.rank)
    return Hung((youngest,), in_a_collective(scene, youngest, min(scene.begun, default=waited)))


def has_waited(scene: Scene, cases: Sequence[Case]) -> bool:
    """Whether others have waited for as long as a step may take; who is stopped is found at once."""
    if all(case.worker.is_stopped for case in cases):
        return True
    return max(worker.since for worker in scene.waiting) > scene.patience - scene.usual


def late(workers: Sequence[Seen], limits: Limits) -> list[tuple[Seen, str]]:
    """Return who has kept the others waiting for long, and may only be slow; each in a sentence."""
    scene = Scene(workers, limits)
    if scene.steps:
        return []
    slow = [case for case in scene.cases() if case.limit > scene.patience]
    waited = min(scene.begun, default=inf) - scene.patience
    found = [case for case in slow if min(case.seconds, waited) > min(LATE, case.limit / 2)]
    return [(case.worker, late_sentence(case, scene)) for case in found]


def blame(cases: Sequence[Case], scene: Scene) -> Hung:
    """Return the verdict about workers for which the others wait."""
    hung = [case.worker for case in cases]
    first, does, since, _ = cases[0]
    more = f" and {len(hung) - 1} more" if len(hung) > 1 else ""
    others = them(scene, hung)
    last = f"; its last step was {first.state.step}" if first.state.step else ""
    idle, usual = scene.begun, scene.usual
    still = f"no step for {min(idle):.1f} s (usual {usual:.2g} s); " if idle and usual else ""
    return Hung(
        tuple(hung),
        f"rank {first.rank} on {first.node}{more} hangs: {still}it {does} for {since:.1f} s while "
        f"{others}{last}",
    )


def late_sentence(case: Case, scene: Scene) -> str:
    """Return in a sentence that a worker is late, and how long the others will wait for it."""
    end = "" if case.limit == inf else f"; it is killed after {case.limit:.0f} s"
    worker = case.worker
    return (
        f"rank {worker.rank} on {worker.node} {case.does} for {case.seconds:.0f} s while "
        f"{them(scene, [worker])}{end}"
    )


def them(scene: Scene, but: Sequence[Seen]) -> str:
    """Return how many others wait for these, and where, in words."""
    many = len([worker for worker in scene.waiting if worker not in but])
    return f"{'1 other waits' if many == 1 else f'{many} others wait'} for it{scene.where(but)}"


def describe(inside: Collective) -> str:
    """Return a collective in words."""
    return f"{inside.name} of {inside.size} numbers" if inside.size else inside.name


def seconds(wait: timedelta) -> float:
    """Return a bound in seconds; one of 0 has no end."""
    return wait.total_seconds() or inf


def in_a_collective(scene: Scene, youngest: Seen, idle: float) -> str:
    """Return the verdict about a collective that does not end."""
    why = scene.mismatch() or f"each waits for the others{scene.where()}"
    return (
        f"all {len(scene.workers)} workers hang in a collective: no step for {idle:.0f} s (usual "
        f"{scene.usual:.2g} s), and {why}; rank {youngest.rank} on {youngest.node}, the youngest, is "
        "restarted"
    )
