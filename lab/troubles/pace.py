"""A clock that several processes share, and that a test makes go fast or slow.

A test that wants to see a lease expire lets time fly; where a leader is to stay one, time nearly stands
still, so that no machine is too busy for it. The order of things is the same for all: nobody's time is ahead.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elasticjob.kube.clock import BootClock, Timer

SLOW, USUAL, BRISK, FAST = 0.1, 1.0, 4.0, 10.0
LOOK = 0.03
"""Real seconds between two looks at what time it is."""
MOMENT = struct.Struct("=ddd")
SIZE = 1 + 2 * MOMENT.size


@dataclass(frozen=True)
class Moment:
    """From the machine's time `real` on it is `told`, and goes on at `rate`."""

    real: float
    virtual: float
    rate: float

    def at(self, real: float) -> float:
        return self.virtual + (real - self.real) * self.rate


class Pace:
    """The rate of time, in a file: two records, and a byte that selects the valid one."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def read(self) -> Moment:
        while True:
            which = self._map[0]
            moment = Moment(*MOMENT.unpack_from(self._map, 1 + which * MOMENT.size))
            if self._map[0] == which:
                return moment

    def go(self, rate: float) -> None:
        """Have time go at this rate from now on."""
        real = BootClock().monotonic()
        other = 1 - self._map[0]
        MOMENT.pack_into(self._map, 1 + other * MOMENT.size, real, self.read().at(real), rate)
        self._map[0] = other


class PacedClock(BootClock):
    """The shared time as one process sees it: it never steps back."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._last = 0.0

    def monotonic(self) -> float:
        moment = self._pace.read()
        self._last = max(self._last, moment.at(super().monotonic()))
        return self._last

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        return _PutOff(self, self.monotonic() + seconds, call)

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        await asyncio.sleep(0)
        while self.monotonic() < until:  # noqa: ASYNC110 # how long that takes may change meanwhile
            await asyncio.sleep(LOOK)


class _PutOff:
    def __init__(self, clock: PacedClock, until: float, call: Callable[[], object]) -> None:
        self._clock = clock
        self._until = until
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK, self._look)

    def cancel(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._clock.monotonic() >= self._until:
            self._call()
        else:
            self._timer = self._loop.call_later(LOOK, self._look)
