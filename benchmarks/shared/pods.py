"""The pods of the benchmark, as a watch tells of them: which run, and which were ever made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from benchmarks.clients.load import followed
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD

SETTLED: Final = 1.0
"""Seconds that a state must last to count: pods that run may be restarted together a moment later."""


class TooLate(Exception):
    """A state was not reached in time; the message is a sentence."""


class Pods:
    """The pods of one namespace. `trains` is a part of the name of those that train."""

    def __init__(self, cache: Cache[Any], trains: str) -> None:
        self.made: dict[str, str] = {}  # by uid, the name: of pods that are gone as well
        self._cache = cache
        self._trains = trains
        self._news = asyncio.Event()
        self.most = 0
        cache.subscribe(self._changed)

    def named(self, job: str) -> set[str]:
        """The names of a job's pods."""
        return {item.key.name for item in self._cache.items() if item.key.name.startswith(f"{job}-")}

    def running(self, job: str) -> set[str]:
        """The uids of those of a job that train: they run, and nobody has deleted them."""
        return {
            item.meta.uid
            for item in self._cache.items()
            if item.key.name.startswith(f"{job}-{self._trains.lstrip('-')}") and self._runs(item)
        }

    def name(self, uid: str) -> str:
        return self.made[uid]

    def node(self, name: str, namespace: str) -> str:
        """Where a pod runs."""
        found = self._cache.get((namespace, name))
        return str(found.spec.node_name) if found else ""

    def on(self, node: str) -> list[str]:
        """The names of the pods on a node."""
        return [
            item.key.name for item in self._cache.items() if self._cache.view(item).spec.node_name == node
        ]

    def names(self) -> set[str]:
        """All that there are."""
        return {item.key.name for item in self._cache.items()}

    async def until(
        self, holds: Callable[[], bool], what: str, patience: float, settled: float = SETTLED
    ) -> float:
        """When it began to hold, once it has lasted for so long. Raises TooLate."""
        ends, since = time.monotonic() + patience, 0.0
        while True:
            now = time.monotonic()
            since = (since or now) if holds() else 0.0
            if since and now - since >= settled:
                return since
            if now > ends and not since:
                raise TooLate(f"not within {patience:.0f} s: {what}")
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), SETTLED / 4)

    def _runs(self, item: Any) -> bool:
        return item.meta.deletion_timestamp is None and self._cache.view(item).status.phase == "Running"

    def _changed(self, change: Change) -> None:
        if change.new:
            self.made.setdefault(change.new.meta.uid, change.new.key.name)
        running = sum(self._trains in item.key.name and self._runs(item) for item in self._cache.items())
        self.most = max(self.most, running)
        self._news.set()


@asynccontextmanager
async def watched(client: Client, namespace: str, trains: str) -> AsyncIterator[Pods]:
    """The pods of a namespace, for as long as the block lasts."""
    cache: Cache[Any] = Cache(POD, namespace)
    pods = Pods(cache, trains)
    async with followed(client, cache):
        yield pods
