"""kr8s: `api.get`, `api.watch` (whose first events are what there is already), and `patch` on the object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import kr8s
import kr8s.asyncio

from benchmarks.clients.peers import Saw, touched
from benchmarks.clients.peers.loop import handled


@dataclass(frozen=True)
class Peer:
    api: Any

    async def fill(self, count: int) -> Any:
        found = {}
        async for pod in self.api.get("pods", namespace=kr8s.ALL):
            found[pod.namespace, pod.name] = pod
        assert len(found) == count
        return found

    async def follow(self, saw: Saw) -> None:
        async for type_, pod in self._changes("pods", kr8s.ALL):
            if type_ == "MODIFIED":
                saw(pod.name, pod.metadata.resourceVersion)

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        async def handle(found: Any) -> None:
            started(found.name, found.metadata.resourceVersion)
            if write:
                await found.patch({"data": touched(found.raw.get("data", {}))})

        async def changes() -> AsyncIterator[Any]:
            async for type_, found in self._changes("configmaps", namespace):
                if type_ == "MODIFIED" or write:
                    yield found

        await handled(changes(), workers, handle)

    async def _changes(self, kind: str, namespace: str) -> AsyncIterator[Any]:
        while True:  # its watch returns when the server ends it, as servers do with clients that are slow
            async for change in self.api.watch(kind, namespace=namespace):
                yield change


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    yield Peer(await kr8s.asyncio.api(kubeconfig=kubeconfig))
