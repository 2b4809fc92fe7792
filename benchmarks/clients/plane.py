"""A control plane with machines that only pretend, and what a watch tells of its objects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.clients.load import Manifest, Plain, all_of, plain
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import NODE
from lab.clusters.plane.controlplane import ControlPlane
from lab.running import beside

NAMESPACE: Final = "bench"
AGENT: Final = "bench-user"
LOOK_AGAIN: Final = 0.25
"""Seconds after which a condition is asked again, though nothing has changed."""


class TooLate(TimeoutError):
    """A state was not reached in time; the message is a sentence."""


class Seen:
    """The objects of one kind: which were ever made, and for which of them something holds."""

    def __init__(self, cache: Cache[Any], holds: Callable[[Any], bool]) -> None:
        self.cache = cache
        self.made: dict[str, str] = {}
        """By uid, the name: of objects that are gone as well."""
        self.good: set[str] = set()
        """The uids of those for which it holds now."""
        self.most = 0
        """The most for which it held at once."""
        self._holds = holds
        self._news = asyncio.Event()
        cache.subscribe(self._changed)

    async def all(self, count: int, what: str, patience: float) -> float:
        """When it held for so many. Raises TooLate."""
        try:
            return await self.until(lambda: len(self.good) >= count, what, patience)
        except TooLate:
            raise TooLate(f"after {patience:.0f} s {self.progress(count, what)}") from None

    def progress(self, count: int, what: str) -> str:
        """Their number, in words."""
        return f"{len(self.good)} of {count} {what} are ready"

    async def until(
        self, condition: Callable[[], bool], what: str, patience: float, settled: float = 0.0
    ) -> float:
        """When a condition began to hold, once it has lasted for so long. Raises TooLate."""
        ends, since = time.monotonic() + patience, 0.0
        while True:
            now = time.monotonic()
            since = (since or now) if condition() else 0.0
            if since and now - since >= settled:
                return since
            if now > ends and not since:
                raise TooLate(f"not within {patience:.0f} s: {what}")
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LOOK_AGAIN)

    def _changed(self, change: Change) -> None:
        if change.old:
            self.good.discard(change.old.meta.uid)
        if change.new:
            self.made.setdefault(change.new.meta.uid, change.new.key.name)
            if self._holds(self.cache.view(change.new)):
                self.good.add(change.new.meta.uid)
        self.most = max(self.most, len(self.good))
        self._news.set()


@asynccontextmanager
async def followed(client: Client, cache: Cache[Any]) -> AsyncIterator[None]:
    """Keep a cache in step with the server for as long as the block lasts."""
    async with beside(Informer(client, cache).run()):
        await cache.wait_synced()
        yield


@asynccontextmanager
async def seen(client: Client, kind: Any, holds: Callable[[Any], bool]) -> AsyncIterator[Seen]:
    """The objects of a kind, for as long as the block lasts."""
    found = Seen(Cache(kind, NAMESPACE if kind.namespaced else ""), holds)
    async with followed(client, found.cache):
        yield found


def machine(name: str, has: Mapping[str, str] | None = None) -> Manifest:
    """Return a machine that kwok plays."""
    labels = {"kubernetes.io/hostname": name}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels}
    status = {"status": {"allocatable": has, "capacity": has}} if has else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, **status}


@asynccontextmanager
async def pretended(
    folder: Path, machines: Iterable[Manifest], kwok_flags: Sequence[str] = ()
) -> AsyncIterator[tuple[ControlPlane, Plain, Client]]:
    """Start a control plane with these machines, and open two clients of it."""
    with ControlPlane(folder, scheduler=True, kwok=True, kwok_flags=kwok_flags) as plane:
        async with (
            plain(plane.kubeconfig, AGENT) as server,
            Client(plane.config(), user_agent=AGENT) as client,
        ):
            await server.namespace(NAMESPACE)
            await all_of([partial(server.send, "POST", NODE.path(), machine) for machine in machines])
            yield plane, server, client
