"""elasticjob.kube: an Operator with one cache, and one Controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.clients.peers import Saw, touched
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client import kubeconfig as kubeconfigs
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, POD
from elasticjob.kube.operator.operator import Operator


@dataclass(frozen=True)
class Peer:
    client: Client

    def operator(self, namespace: str = "") -> Operator:
        return Operator(self.client, namespace, probes=None, signals=False)

    async def fill(self, count: int) -> Any:
        operator = self.operator()
        pods = operator.cache(POD)
        running = asyncio.create_task(operator.run())
        await operator.wait_started()
        assert len(pods) == count
        return pods, running

    async def follow(self, saw: Saw) -> None:
        operator = self.operator()

        def changed(change: Change) -> None:
            if change.old and change.new:
                saw(change.new.meta.name, change.new.meta.resource_version)

        operator.cache(POD).subscribe(changed)
        await operator.run()

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        operator = self.operator(namespace)
        maps = operator.cache(CONFIG_MAP)

        async def reconcile(key: Key) -> Result:
            found = maps.get(key)
            if found is not None:
                started(key.name, found.metadata.resource_version)
                if write:
                    patch = {"data": touched(found.data)}
                    await self.client.merge_patch(CONFIG_MAP, key.name, patch, key.namespace)
            return Result.done()

        operator.add(Controller("bench", reconcile, for_=CONFIG_MAP, concurrency=workers))
        await operator.run()


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    async with Client(await kubeconfigs.load(kubeconfig, None)) as client:
        yield Peer(client)
