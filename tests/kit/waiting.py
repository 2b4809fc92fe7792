"""Waiting for what only asking tells."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PAUSE = 0.01
PATIENCE = 180.0
"""Seconds; a test that passes waits for a few of them, unless the machine is very busy.

A real garbage collector collects nothing for up to a minute after a kind has gone.
"""


async def until(ask: Callable[[], Awaitable[object]], what: str, within: float = PATIENCE) -> None:
    """Ask until the answer is true. Raises AssertionError, naming `what` was waited for."""
    try:
        async with asyncio.timeout(within):
            while not await ask():  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(PAUSE)  # a busy loop would take the core from what is waited for
    except TimeoutError:
        raise AssertionError(f"{what}: not within {within:g} s") from None
