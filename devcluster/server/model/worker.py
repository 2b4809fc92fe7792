"""A queue of keys and the task that handles them one by one; failed keys are retried after a pause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from elasticjob.devcluster.server.model.errors import StatusError

K = TypeVar("K")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 5.0
_log = logging.getLogger(__name__)


class Worker(Generic[K]):
    """`add` may be called from anywhere in the loop's thread; `run` lasts until cancelled."""

    def __init__(self, handle: Callable[[K], Awaitable[None]]) -> None:
        self._handle = handle
        self._waiting: dict[K, None] = {}
        self._wake = asyncio.Event()
        self._failures: dict[K, int] = {}
        self._timers: set[asyncio.TimerHandle] = set()

    def add(self, key: K) -> None:
        self._waiting[key] = None
        self._wake.set()

    def add_later(self, key: K, delay: float) -> None:
        """Add a key after so many seconds."""

        def fire() -> None:
            self._timers.discard(timer)
            self.add(key)

        timer = asyncio.get_running_loop().call_later(delay, fire)
        self._timers.add(timer)

    async def run(self) -> None:
        """Handle keys for ever. Refusals are retried; anything else is a bug and is logged."""
        try:
            while True:
                await self._wake.wait()
                while self._waiting:
                    await self._once(next(iter(self._waiting)))
                self._wake.clear()
        finally:
            for timer in self._timers:
                timer.cancel()

    async def _once(self, key: K) -> None:
        del self._waiting[key]
        try:
            await self._handle(key)
        except StatusError as error:
            if error.code != 404:
                self._again(key)
                return
        except Exception:  # the one loop that outlives everything it handles
            _log.exception("handling %s failed", key)
            return
        self._failures.pop(key, None)

    def _again(self, key: K) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_later(key, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**failures))
