"""Waiting for what only asking tells, and how long a test waits at most.

A passing test stops to wait when the fact is there, so its patience costs nothing: it only bounds a hang.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

PAUSE, LONGEST = 0.01, 0.25
"""Seconds between the first two questions, and the most between any two."""
ENOUGH = 180.0
"""Seconds on an idle machine; a real garbage collector idles for up to a minute after a kind has gone."""
SLOWNESS = "ELASTICJOB_TESTS_SLOWNESS"
"""The variable in which the first process of a run tells the others how slow the machine is."""
ROUNDS, USUAL = 400_000, 0.05
"""Additions in a loop, and the seconds that they take on an idle machine of ours."""
SLOWEST = 4.0


def slowness() -> float:
    """How many times slower than an idle machine this one is now, 1 to SLOWEST: measured once in a run."""
    if SLOWNESS not in os.environ:
        waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
        measured = max(waiting, *(_seconds() / USUAL for _ in range(3)))
        os.environ[SLOWNESS] = f"{min(SLOWEST, max(1.0, measured)):.1f}"
    return float(os.environ[SLOWNESS])


def _seconds() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(ROUNDS):
        total += number
    return time.perf_counter() - began


PATIENCE = ENOUGH * slowness()
"""Seconds that a test waits for what should happen soon."""


async def until(
    ask: Callable[[], object | Awaitable[object]], what: str = "it", within: float = PATIENCE
) -> None:
    """Ask until the answer is true. Raises AssertionError, naming `what` was waited for."""
    pause = PAUSE
    try:
        async with asyncio.timeout(within):
            while not (await answer if isawaitable(answer := ask()) else answer):
                await asyncio.sleep(pause)  # a busy loop would take the core from what is waited for
                pause = min(1.2 * pause, LONGEST)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {within:g} s") from None


def wait_until(ask: Callable[[], object], what: str = "it", within: float = PATIENCE) -> None:
    """`until` of a thread without a loop."""
    deadline = time.monotonic() + within
    while not ask():
        assert time.monotonic() < deadline, f"{what}: not within {within:g} s"
        time.sleep(2 * PAUSE)
