"""The limit of the API server itself: responses are read and discarded, not parsed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.clients.load import plain
from benchmarks.clients.peers import Saw, aiohttp

PODS: Final = "/api/v1/pods"
WATCH: Final = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
"""The query of elasticjob's watches."""
DONE: Final = b'"k8s.io/initial-events-end":"true"'
CHANGED: Final = b'{"type":"MODIFIED"'
CONTINUE: Final = b'"continue":"'
HEAD: Final = 1000
"""Bytes of a list in which it says whether it goes on."""


class Peer(aiohttp.Peer):
    """The writes of aiohttp's, with a watch beside them."""

    async def fill(self, count: int) -> Any:
        async with aclosing(self._heard(PODS, DONE)) as heard:
            async for times in heard:
                if times:
                    return

    async def pages(self, size: str) -> None:
        """Ask for all pods by pages."""
        token = ""
        while True:
            head = (await self.server.send("GET", f"{PODS}?limit={size}{token}"))[:HEAD]
            _, more, rest = head.partition(CONTINUE)
            if not more:
                return
            token = "&continue=" + rest.partition(b'"')[0].decode()

    async def whole(self, version: str) -> None:
        """Ask for all pods at once, not older than a version."""
        await self.server.send("GET", f"{PODS}?resourceVersion={version}")

    async def follow(self, saw: Saw) -> None:
        async for times in self._heard(PODS, CHANGED):
            for _ in range(times):
                saw("", "")

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._listen(f"/api/v1/namespaces/{namespace}/configmaps"))
            both.create_task(super().reconcile(namespace, workers, started, write=write))

    async def _listen(self, path: str) -> None:
        async for _ in self._heard(path, DONE):
            pass

    async def _heard(self, path: str, words: bytes) -> AsyncGenerator[int]:
        """Yield how often each next piece of a watch contains the given words."""
        async with aclosing(self.server.chunks(f"{path}?{WATCH}")) as chunks:
            before = b""
            async for chunk in chunks:
                piece = before + chunk
                yield piece.count(words)
                before = piece[1 - len(words) :]


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    async with plain(Path(kubeconfig)) as server:
        yield Peer(server)
