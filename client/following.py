"""Following objects by list and watch, for as long as somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.client.client import Client

T = TypeVar("T")


@asynccontextmanager
async def followed(client: Client, cache: Cache[T]) -> AsyncIterator[AsyncIterator[Cache[T]]]:
    """Keep `cache` equal to the server; the iterator yields it at first and after each change, in step."""
    changed = asyncio.Event()
    cache.subscribe(lambda _: changed.set())
    task = asyncio.create_task(Informer(client, cache).run())
    try:
        yield _states(cache, changed)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _states(cache: Cache[T], changed: asyncio.Event) -> AsyncIterator[Cache[T]]:
    await cache.wait_synced()
    while True:
        changed.clear()
        yield cache
        await changed.wait()
