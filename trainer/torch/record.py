"""A file of all counted steps, for plots and tests: one JSON line each, written only where asked for.

The job sets ELASTICJOB_STEPS to a path that all workers can write; the main one of each world appends to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import msgspec

STEPS: Final = "ELASTICJOB_STEPS"


class Counted(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: when it was counted (Unix time), in which round, by how many workers."""

    at: float
    round: int
    step: int
    world: int
    loss: float


class Record:
    """Appends steps to a file; a line is one write, so nobody reads half a step of a worker that dies."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  # open as long as the worker lives

    def add(self, round_: int, step: int, world: int, loss: float) -> None:
        """Count a step now."""
        counted = Counted(at=time.time(), round=round_, step=step, world=world, loss=loss)
        self._file.write(msgspec.json.encode(counted) + b"\n")


def from_environment(environment: Mapping[str, str]) -> Record | None:
    """Return the record that was asked for, None if none was."""
    path = environment.get(STEPS)
    return Record(path) if path else None
