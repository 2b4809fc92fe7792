"""No framework at all: requests by aiohttp, `json.loads`, no recovery from anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients.load import MERGE, Plain, plain
from benchmarks.clients.peers import Saw, touched
from benchmarks.clients.peers.loop import handled


@dataclass(frozen=True)
class Peer:
    server: Plain

    async def fill(self, count: int) -> Any:
        listed = json.loads(await self.server.send("GET", "/api/v1/pods?resourceVersion=0"))
        found = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in listed["items"]}
        assert len(found) == count
        return found

    async def follow(self, saw: Saw) -> None:
        async for pod in self._changes("/api/v1/pods"):
            saw(pod["metadata"]["name"], pod["metadata"]["resourceVersion"])

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        if write:
            await self._write(path, workers, started)

        async def handle(found: Any) -> None:
            started(found["metadata"]["name"], found["metadata"]["resourceVersion"])

        await handled(self._changes(path), workers, handle)

    async def _write(self, path: str, workers: int, started: Saw) -> None:
        """The same writes, without a watch: the limit of the server."""
        listed = json.loads(await self.server.send("GET", path))
        counts = {item["metadata"]["name"]: item.get("data", {}) for item in listed["items"]}

        async def work(names: list[str]) -> None:
            while True:
                for name in names:
                    started(name, "")
                    counts[name] = touched(counts[name])
                    await self.server.send("PATCH", f"{path}/{name}", {"data": counts[name]}, MERGE)

        async with asyncio.TaskGroup() as tasks:
            for number in range(workers):
                tasks.create_task(work(list(counts)[number::workers]))

    async def _changes(self, path: str) -> AsyncIterator[Any]:
        version = json.loads(await self.server.send("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        async for line in self.server.lines(f"{path}?watch=true&resourceVersion={version}"):
            event = json.loads(line)
            if event["type"] == "MODIFIED":
                yield event["object"]


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    async with plain(Path(kubeconfig)) as server:
        yield Peer(server)
