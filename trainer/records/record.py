"""A file of all counted steps, for plots and tests: one JSON line each, off by default.

The job sets ELASTICJOB_STEPS to a path that all workers can write; the main one of each world appends to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from io import RawIOBase
from typing import Final

import msgspec

from elasticjob.trainer.records.done import Done

STEPS: Final = "ELASTICJOB_STEPS"


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: when it was counted (Unix time), in which round, by how many workers."""

    at: float
    round: int
    step: int
    world: int
    loss: float


class Record:
    """Appends steps to a file; each line is a single write, so a worker that dies leaves no partial line."""

    def __init__(self, file: RawIOBase, *, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._last = 0

    def add(self, round_: int, world: int, before: Done, done: Done) -> None:
        """Record a step now, and the one before, if its main worker may have died before it could."""
        for each in (before, done):
            if each is done or each.step > self._last:
                counted = StepRecord(
                    at=self._clock(), round=round_, step=each.step, world=world, loss=each.loss
                )
                self._file.write(msgspec.json.encode(counted) + b"\n")
        self._last = done.step


def from_environment(environment: Mapping[str, str]) -> Record | None:
    """Return the record named by the environment, or None."""
    path = environment.get(STEPS)
    return Record(open(path, "ab", buffering=0)) if path else None  # as long as the worker lives
