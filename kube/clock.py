"""Time as an argument: the clock of the machine, and one for tests that moves only when told."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Timer(Protocol):
    """A call that has been put off."""

    def cancel(self) -> None:
        """Have it never happen."""


class Clock(Protocol):
    """A clock. `monotonic` never steps back; `now` is aware and UTC."""

    def now(self) -> datetime:
        """The time on the wall: aware, UTC; it may step."""

    def monotonic(self) -> float:
        """Seconds since some moment; they never step back."""

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Call a function later, in the running event loop."""

    async def sleep(self, seconds: float) -> None:
        """Return after some seconds."""


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, seconds), call)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BootClock(SystemClock):
    """The machine's time, with a `monotonic` that goes on while the machine is suspended (where it can)."""

    def monotonic(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Put:
    """One entry of the virtual clock's agenda."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class VirtualClock:
    """A clock for tests: `await clock.advance(seconds)` runs all that falls due on the way, in order."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, _Put]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        put = _Put(call)
        heapq.heappush(self._agenda, (self._elapsed + max(0.0, seconds), next(self._order), put))
        return put

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time forward, letting other tasks run before, after, and at each moment on the way."""
        end = self._elapsed + seconds
        await self.settle()
        while self._agenda and self._agenda[0][0] <= end:
            due, _, put = heapq.heappop(self._agenda)
            self._elapsed = max(self._elapsed, due)
            if put.call is not None:
                put.call()
                await self.settle()
        self._elapsed = max(self._elapsed, end)
        await self.settle()

    def jump(self, seconds: float) -> None:
        """Move time forward as a machine that slept: what fell due comes late, with the next move."""
        self._elapsed += seconds

    @property
    def next_due(self) -> float | None:
        """Seconds until something falls due, None when nothing will."""
        while self._agenda and self._agenda[0][2].call is None:
            heapq.heappop(self._agenda)
        return max(0.0, self._agenda[0][0] - self._elapsed) if self._agenda else None

    async def settle(self, rounds: int = 20) -> None:
        """Let all other tasks run until they wait for something."""
        for _ in range(rounds):
            await asyncio.sleep(0)


@asynccontextmanager
async def deadline(clock: Clock, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """`asyncio.timeout` on any clock: raises TimeoutError when the block takes longer than `seconds`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as timeout:
        if seconds is None:
            yield timeout
            return
        timer = clock.call_later(seconds, lambda: timeout.reschedule(loop.time()))
        try:
            yield timeout
        finally:
            timer.cancel()
