"""An event loop in which time passes at once: where no task can go on, it is as late as the next timer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar

from elasticjob.kube.clock import SystemClock

T = TypeVar("T")

START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
MANY: Final = 100
"""Timers from which cancelled ones are looked for."""


class _Loop(asyncio.SelectorEventLoop):
    """asyncio's loop without files and threads. Timers of the same instant keep asyncio's order."""

    passed = 0.0
    _ready: deque[asyncio.Handle]
    _scheduled: list[tuple[float, asyncio.TimerHandle]]
    _timer_cancelled_count: int
    _stopping: bool
    _clock_resolution: float

    def time(self) -> float:
        return self.passed

    def call_at(  # type: ignore[override]  # the callback's arguments are not checked
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, (when, timer))
        timer._scheduled = True  # type: ignore[attr-defined]  # its loop counts those that are cancelled
        return timer

    def _run_once(self) -> None:
        """Call what is ready; where nothing is, it is as late as the next timer."""
        timers, ready = self._drop_cancelled(), self._ready
        if not ready and not self._stopping:
            if not timers:
                raise RuntimeError("all tasks wait, and no timer is set")
            self.passed += max(0.0, timers[0][0] - self.passed)
        end = self.passed + self._clock_resolution
        while timers and timers[0][0] < end:
            timer = heappop(timers)[1]
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> list[tuple[float, asyncio.TimerHandle]]:
        """Return the timers, rid of cancelled ones when asyncio does that: the order depends on it."""
        timers = self._scheduled
        if len(timers) > MANY and self._timer_cancelled_count > len(timers) / 2:
            self._scheduled = timers = [each for each in timers if not each[1]._cancelled]
            heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers)
        return timers


class LoopClock(SystemClock):
    """The time of the running loop."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time; an exception of a timer is raised, too."""
    failed = list[Exception]()
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.get_loop().set_exception_handler(
            lambda _, found: failed.append(found["exception"]) if "handle" in found else None
        )
        try:
            return runner.run(main)
        finally:
            if failed:
                raise failed[0]
