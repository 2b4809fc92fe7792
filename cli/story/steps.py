"""Analysis of the counted steps: durations of standstills, and missing steps.

A standstill is the time between the last step of one round and the first of the next. It is measured in the
workers, where steps are counted, so it covers everything that a user waits for: detection, regrouping,
starting, stepping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec


class Step(msgspec.Struct, frozen=True):
    """One counted optimizer step: its time (Unix), round, and number of workers."""

    at: float
    round: int
    step: int
    world: int
    loss: float | None = None
    metrics: dict[str, float] = {}


@dataclass(frozen=True)
class Standstill:
    """The time without a step between `began` and `ended`, the first step of `round`."""

    round: int
    began: float
    ended: float
    before: int
    after: int

    @property
    def seconds(self) -> float:
        """Duration of the standstill."""
        return self.ended - self.began


def standstills(steps: Sequence[Step]) -> tuple[Standstill, ...]:
    """Return one standstill for each change of round, in order; `steps` are in order of time."""
    return tuple(
        Standstill(after.round, before.at, after.at, before.world, after.world)
        for before, after in pairwise(steps)
        if before.round != after.round
    )


def gaps(steps: Sequence[Step]) -> tuple[str, ...]:
    """Return a sentence for each break in the count: within a round every step follows the one before it.

    A new round may begin at most one step after the last counted step, and it may begin earlier: steps that
    were not shared or saved are repeated, under the same numbers.
    """
    return tuple(_gaps(steps))


def _gaps(steps: Sequence[Step]) -> Iterator[str]:
    furthest = 0
    for before, after in pairwise((None, *steps)):
        if after is None:
            continue
        same_round = before is not None and before.round == after.round
        expected = before.step + 1 if same_round and before is not None else furthest + 1
        if after.step != expected if same_round else after.step > expected:
            yield f"round {after.round} counted step {after.step}, expected {expected}"
        furthest = max(furthest, after.step)


def lost(steps: Sequence[Step]) -> int:
    """Return how many steps were trained twice, or left out, at changes of the round.

    A worker that becomes the main one records the step before its first one, too: the main worker before it
    may have died before it could.
    """
    changes = ((a, b) for a, b in pairwise(steps) if a.round != b.round)
    return sum(abs(a.step + 1 - b.step) for a, b in changes if (a.step, a.loss) != (b.step, b.loss))


def rate(steps: Sequence[Step], window: float) -> Iterator[tuple[float, float]]:
    """Yield (time, steps per second) at the middle of each window of `window` seconds."""
    if not steps:
        return
    first, last = steps[0].at, steps[-1].at
    counts = [0] * (int((last - first) / window) + 1)
    for step in steps:
        counts[int((step.at - first) / window)] += 1
    for place, count in enumerate(counts):
        yield (
            first + (place + 0.5) * window,
            count / min(window, max(last - first - place * window, window / 2)),
        )


def smooth(steps: Sequence[Step], weight: float) -> Iterator[tuple[float, float]]:
    """Yield (time, loss) with an exponential moving average, in which a new value has `weight`."""
    average: float | None = None
    for step in steps:
        if step.loss is None:
            continue
        average = step.loss if average is None else average + weight * (step.loss - average)
        yield step.at, average
