"""A plain asyncio.Queue between watch and handlers, for clients without a queue of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def handled(changes: AsyncIterator[T], workers: int, handle: Callable[[T], Awaitable[None]]) -> None:
    """Hand each change to one of several workers, until cancelled."""
    queue: asyncio.Queue[T] = asyncio.Queue()

    async def work() -> None:
        while True:
            await handle(await queue.get())

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())
        async for change in changes:
            queue.put_nowait(change)
