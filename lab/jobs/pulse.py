"""Time that counts only while this process gets its turns: the machine may have other things to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

BEAT: Final = 0.1
MOST: Final = 5.0
"""How many times longer than by its beats something may take by the clock."""


class Pulse:
    """`now` rises by a beat for each that came, however late it came."""

    def __init__(self) -> None:
        self.now = 0.0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            await asyncio.sleep(BEAT)
            self.now += BEAT

    def stamp(self) -> Stamp:
        """Return this moment."""
        return Stamp(self, self.now, time.monotonic())

    async def until(self, ask: Callable[[], Awaitable[bool]], within: float) -> bool:
        """Ask until the answer is true; return whether it was."""
        began = self.stamp()
        while not await ask():
            if began.ago > within:
                return False
            await asyncio.sleep(2 * BEAT)  # only asking tells
        return True


class Stamp:
    """A moment."""

    def __init__(self, pulse: Pulse, beats: float, clock: float) -> None:
        self._pulse, self._beats, self._clock = pulse, beats, clock

    @property
    def ago(self) -> float:
        """Seconds since then, as a machine without other work would show."""
        return max(self._pulse.now - self._beats, (time.monotonic() - self._clock) / MOST)
