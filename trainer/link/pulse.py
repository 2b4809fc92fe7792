"""Where a worker is, in a page of memory that it shares with its agent: step, phase, since when.

The worker writes it at each change of phase, which costs about a microsecond and no system call. The agent
can read it at any time, also while the worker is stopped or blocked. Times are CLOCK_MONOTONIC, which all
processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from elasticjob.trainer.link import recorder, stacks

FD: Final = "ELASTICJOB_PULSE_FD"
SIZE: Final = mmap.PAGESIZE
_LAYOUT: Final = struct.Struct("=QQqdddq8dQ")  # version, a Pulse, version again


class Phase(IntEnum):
    """What the training thread of a worker does."""

    STARTING = 0  # imports, makes the model; no world yet
    OUTSIDE = 1  # between two steps: evaluates, saves, prints
    COMPUTING = 2  # in a step, before its last backward pass: waits for no other worker
    REDUCING = 3  # in the last backward pass or a collective: may wait for the others
    READING = 4  # in a step, waits for its records
    WAITING = 5  # for its next world, or for the others at the first step in it
    ENDED = 6  # after the last step


class Pulse(NamedTuple):
    """A worker's last word: `step` is the last whole one, `since` when the phase began.

    `busy` is how long the worker took in the last step before it waited for the others, `steps` are averaged
    with weight 1/8; `reduced` when the last step ended (0.0: none yet), `records` how many this worker has
    taken in all steps till then. `spent` is the time in each phase before this one, and last that in copies
    of the state, which is a part of the others. In seconds.
    """

    phase: Phase = Phase.STARTING
    step: int = 0
    since: float = 0.0
    busy: float = 0.0
    reduced: float = 0.0
    records: int = 0
    spent: tuple[float, ...] = (0.0,) * 8


class Page:
    """The shared page, written by one thread of the worker, read by the agent."""

    def __init__(self, fd: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = mmap.mmap(fd, SIZE)
        self._clock = clock
        self._version = 0
        self._said = Pulse()

    def say(
        self,
        phase: Phase,
        *,
        step: int | None = None,
        busy: float | None = None,
        reduced: float | None = None,
        records: int = 0,
    ) -> None:
        """Write a change of phase; what is not given stays, `records` are more than before."""
        old, now = self._said, self._clock()
        spent = [*old.spent]
        if old.since:
            spent[old.phase] += now - old.since
        self._write(
            Pulse(
                phase,
                old.step if step is None else step,
                now,
                old.busy if busy is None else busy,
                old.reduced if reduced is None else reduced,
                old.records + records,
                tuple(spent),
            )
        )

    def saved(self, seconds: float) -> None:
        """Write that a copy of the state took so long."""
        spent = (*self._said.spent[:-1], self._said.spent[-1] + seconds)
        self._write(self._said._replace(spent=spent))

    def _write(self, said: Pulse) -> None:
        self._said = said
        self._version += 1
        *first, spent = said
        _LAYOUT.pack_into(self._memory, 0, self._version, *first, *spent, self._version)

    def read(self) -> Pulse | None:
        """Return the last word; None if it was just being written."""
        first, phase, *rest, last = _LAYOUT.unpack_from(self._memory, 0)
        step, since, busy, reduced, records, *spent = rest
        pulse = Pulse(Phase(phase), step, since, busy, reduced, records, tuple(spent))
        return pulse if first == last else None


def page() -> int:
    """Return the descriptor of a new page, for an agent to hand to its worker."""
    fd = os.memfd_create("elasticjob-pulse")
    os.ftruncate(fd, SIZE)
    return fd


def from_environment(environment: Mapping[str, str]) -> Page | None:
    """Return the page that the agent gave this worker; None without one.

    The agent can ask for this worker's stacks from now on, and in which collective it waits.
    """
    stacks.register(environment)
    recorder.serve(environment)
    return Page(int(environment[FD])) if FD in environment else None
