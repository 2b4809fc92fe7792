"""Following objects by list and watch, for as long as somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Heed, Informer
from elasticjob.kube.client.client import Client

T = TypeVar("T")


@asynccontextmanager
async def follow_cache(client: Client, cache: Cache[T], heed: Heed) -> AsyncIterator[AsyncIterator[Cache[T]]]:
    """Keep `cache` equal to the server; the iterator yields it at first and after each change, in step.

    The iterator raises what `heed` raises of the errors meanwhile.
    """
    changed = asyncio.Event()
    cache.subscribe(lambda _: changed.set())
    task = asyncio.create_task(Informer(client, cache, heed=heed).run())
    try:
        yield _states(cache, changed, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # the iterator has told its error


async def _states(
    cache: Cache[T], changed: asyncio.Event, following: asyncio.Task[None]
) -> AsyncIterator[Cache[T]]:
    await _while(following, cache.wait_synced())
    while True:
        changed.clear()
        yield cache
        await _while(following, changed.wait())


async def _while(following: asyncio.Task[None], what: Coroutine[Any, Any, object]) -> None:
    """Wait for something that happens only while objects are followed. Raises what ended that."""
    waiting = asyncio.create_task(what)
    try:
        await asyncio.wait({waiting, following}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if following.done():
        following.result()
