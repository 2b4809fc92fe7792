"""An event loop in which time passes at once: where no task can go on, it is as late as the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from elasticjob.kube.clock import SystemClock

T = TypeVar("T")

START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


class _Jumps(selectors.DefaultSelector):
    """Waits for no file: it moves time instead."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("all tasks wait, and no timer is set")
        self.passed += max(0.0, timeout)
        return []


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.passed


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
