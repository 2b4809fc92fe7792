"""How long a training stands still: after blows, at a cold start, and when a node joins.

Each is measured with two workers on a small network. "next" is the time from the blow to the next counted
step of the workers that remain, "full" to the first step of two workers.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Final

from benchmarks.training.book import Sample
from benchmarks.training.job import Job, NotInTime, Step, running
from benchmarks.training.systems import Shape, System
from lab.processes import ProgramFailed

ONE_NODE: Final = Shape(nodes=1, workers=2)
TWO_NODES: Final = Shape(nodes=2, workers=1)
LARGE: Final = {"BENCH_WORK": "large"}
SETTLED: Final = 3  # saves of a job until the next ones cost what all later ones do
SAVES: Final = 5  # of which the medians are a sample
BETWEEN: Final = 250  # steps from one save to the next, for the share of the time that they take
PERIOD: Final = 30.0  # seconds between two kills
AFTER: Final = 20  # steps in the larger world in which the first node may still stand still


def kill_workers(system: System, patience: float) -> Iterator[Sample]:
    """Kill one of two workers, again and again; their agent goes on."""
    while True:
        with running(system, ONE_NODE, patience) as job:
            sample: Sample = {"next": 0.0}
            while None not in sample.values():
                last = job.settled()
                at = time.time()
                os.kill(max(last, key=lambda pid: last[pid]["rank"]), signal.SIGKILL)
                if system.shrinks:
                    yield {"next": seconds_to_next(job, at, last)}
                    break
                yield (sample := after(job, at, last))


def lose_nodes(system: System, patience: float) -> Iterator[Sample]:
    """Kill one of two nodes, agent and worker; each time in a new job."""
    yield from hit_nodes(system, patience, Job.kill)


def silence_nodes(system: System, patience: float) -> Iterator[Sample]:
    """Stop one of two nodes, agent and worker, with SIGSTOP."""
    yield from hit_nodes(system, patience, Job.freeze)


def hit_nodes(system: System, patience: float, blow: Callable[[Job, int], None]) -> Iterator[Sample]:
    """Hit the second node; the first trains on alone."""
    while True:
        with running(system, TWO_NODES, patience) as job:
            last = job.settled()
            at = time.time()
            blow(job, 1)
            sample: Sample = {"next": seconds_to_next(job, at, last)}
        yield sample


def keep_large(system: System, patience: float) -> Iterator[Sample]:
    """Kill one of two workers of a plain script with 400 MB, which goes on from what it has saved.

    "block" is what a save held the step up, "memcpy" how long as many bytes take from memory to memory right
    after it, "ratio" the one by the other; "step" is a step without a save, "share" what a save each 250 of
    them takes of the time, in per cent; "restore" is how long the next life loads.
    """
    large = replace(system, script="large_steps.py")
    while True:
        with running(large, ONE_NODE, patience) as job:
            cost, saved = cost_of_saves(job)
            last = {saved["pid"]: saved}
            while len(last) < 2:
                step = job.until(bool)
                last[step["pid"]] = step
            at = time.time()
            os.kill(max(last, key=lambda pid: last[pid]["rank"]), signal.SIGKILL)
            sample: Sample = {"next": None, **cost, "restore": None}
            with suppress(NotInTime):
                first = next_step(job, at, last)
                if first["first"] == 0:
                    raise ProgramFailed("it began anew: nothing that it had saved was found")
                sample |= {"next": first["at"] - at, "restore": first["restore"]}
        yield sample


def lose_large(system: System, patience: float) -> Iterator[Sample]:
    """Kill one of two workers that keep 400 MB; the other has the state, and trains on without a save.

    "next" is its next step, "full" the first step with a new worker, "stall" its longest pause in between.
    """
    while True:
        with running(system, ONE_NODE, patience, work=LARGE) as job:
            sample: Sample = {"next": 0.0}
            while None not in sample.values():
                last = job.settled()
                survivor, lost = sorted(last, key=lambda pid: last[pid]["rank"])
                at = time.time()
                os.kill(lost, signal.SIGKILL)
                yield (sample := pauses(job, at, last, survivor))


def pauses(job: Job, at: float, before: dict[int, Step], survivor: int) -> Sample:
    """Return the pauses of the process that is left, until both have taken some steps together."""
    sample: Sample = {"next": None, "full": None, "stall": None}
    longest, together = 0.0, 0
    with suppress(NotInTime):
        last = next_step(job, at, before)
        sample["next"] = last["at"] - at
        while together < AFTER:
            step = job.until(lambda step: step["pid"] == survivor)
            longest, last = max(longest, step["at"] - last["at"]), step
            together += step["world"] == 2
            if together == 1:
                sample["full"] = step["at"] - at
        sample["stall"] = longest
    return sample


def cost_of_saves(job: Job) -> tuple[Sample, Step]:
    """Return what saves cost, once they cost the same, and the step with the last one."""
    saves, steps = list[Step](), list[float]()
    before: Step | None = None
    while len(saves) < SETTLED + SAVES:
        step = job.until(lambda step: step["rank"] == 0)
        if step["block"] is not None:
            saves.append(step)
        elif before and follows(before, step):
            steps.append(step["at"] - before["at"])
        before = step
    counted = saves[SETTLED:]
    block, took = median(each["block"] for each in counted), median(steps)
    cost: Sample = {
        "block": block,
        "memcpy": median(each["memcpy"] for each in counted),
        "ratio": median(each["block"] / each["memcpy"] for each in counted),
        "step": 1000 * took,
        "share": 100 * block / (block + BETWEEN * took),
    }
    return cost, saves[-1]


def kill_again(system: System, patience: float) -> Iterator[Sample]:
    """Kill one of two workers every 30 s; yield the goodput of each 30 s from a kill on.

    That is the steps that were gained times the median duration of a step, by the 30 s.
    """
    with running(system, ONE_NODE, patience) as job:
        last, reached = job.settled(), 0
        while True:
            at, took, before = time.time(), list[float](), reached
            previous, newest = None, dict(last)
            os.kill(max(last, key=lambda pid: last[pid]["rank"]), signal.SIGKILL)
            while time.time() < at + PERIOD:
                step = job.until(bool)
                reached = max(reached, step["step"])
                newest[step["pid"]] = step
                if step["rank"] == 0:
                    took += [step["at"] - previous["at"]] if previous and follows(previous, step) else []
                    previous = step
            if before:
                yield {"goodput": (reached - before) * median(took) / PERIOD}
            last = {pid: step for pid, step in newest.items() if step["at"] > at + PERIOD - 5}


def follows(one: Step, other: Step) -> bool:
    """Whether a step came right after another in the same life."""
    return bool(one["life"] == other["life"] and other["step"] == one["step"] + 1)


def join_large(system: System, patience: float) -> Iterator[Sample]:
    """Start one node with 400 MB to keep, then the other: as `start_cold`."""
    yield from start_cold(system, patience, work=LARGE)


def start_cold(system: System, patience: float, work: Mapping[str, str] | None = None) -> Iterator[Sample]:
    """Start one node of at most two, and once it trains, the other.

    "first" is the first step of the one, "stall" its longest pause when the other joins, "joined" the time
    from the start of the other to its first step.
    """
    while True:
        with running(system, TWO_NODES, patience, nodes=0, work=work) as job:
            began = time.time()
            job.start(0)
            try:
                first = job.until(bool)["at"] - began
            except NotInTime:
                yield {"first": None}
                continue
            sample: Sample = {"first": first, "stall": None, "joined": None}
            try:
                last = job.until(lambda step: step["step"] >= AFTER)
                sample["stall"], sample["joined"] = join(job, last)
            except ProgramFailed:
                yield sample
                raise
        yield sample


def join(job: Job, last: Step) -> tuple[float | None, float | None]:
    """Start the second node; return the longest pause of the first, and when both trained."""
    began = time.time()
    job.start(1)
    stall, joined, together = 0.0, None, 0
    try:
        while together < AFTER:
            step = job.until(lambda step: step["node"] == 0)
            stall, last = max(stall, step["at"] - last["at"]), step
            together += step["world"] == 2
            if together and joined is None:
                joined = step["at"] - began
    except NotInTime:
        return None, None
    return stall, joined


def after(job: Job, at: float, before: dict[int, Step]) -> Sample:
    """Return how long it took from `at` to the next step in a new life, and to one of both workers."""
    sample: Sample = {"next": None, "full": None}
    with suppress(NotInTime):
        first = next_step(job, at, before)
        sample["next"] = first["at"] - at
        both = first if first["world"] == 2 else job.until(lambda step: step["world"] == 2)
        sample["full"] = both["at"] - at
    return sample


def seconds_to_next(job: Job, at: float, before: dict[int, Step]) -> float | None:
    """Return how long it took from `at` to the next step in a new life; None if none came in time."""
    with suppress(NotInTime):
        return float(next_step(job, at, before)["at"] - at)
    return None


def next_step(job: Job, at: float, before: dict[int, Step]) -> Step:
    """Return the first step after `at` in none of the lives (rounds, or processes) of the steps `before`."""
    lives = {step["life"] for step in before.values()}
    return job.until(lambda step: step["at"] > at and step["life"] not in lives)
