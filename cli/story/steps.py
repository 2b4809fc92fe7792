"""The record of counted steps, and what it proves: how long training stood still, that no step is missing.

A standstill is the time between the last step of one round and the first of the next. It is measured in the
workers, where steps are counted, so it holds all that a user feels: noticing, regrouping, starting, stepping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec


class Step(msgspec.Struct, frozen=True):
    """One counted optimizer step: when it was done (Unix time), in which round, by how many workers."""

    at: float
    round: int
    step: int
    world: int
    loss: float | None = None
    metrics: dict[str, float] = {}


@dataclass(frozen=True)
class Standstill:
    """No step was made between `began` and `ended`, the first step of `round`."""

    round: int
    began: float
    ended: float
    before: int
    after: int

    @property
    def seconds(self) -> float:
        """How long training stood still."""
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

    A new round may begin at most one step further than any step counted so far, and it may begin earlier:
    what was not yet shared or saved is done again, under the same numbers.
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
