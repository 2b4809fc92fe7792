"""kubernetes_asyncio: a typed list, then `watch.Watch().stream` from its resourceVersion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kubernetes_asyncio import client, config, watch

from benchmarks.clients.peers import Saw, touched
from benchmarks.clients.peers.loop import handled

MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Peer:
    core: Any

    async def fill(self, count: int) -> Any:
        listed = await self.core.list_pod_for_all_namespaces()
        found = {(pod.metadata.namespace, pod.metadata.name): pod for pod in listed.items}
        assert len(found) == count
        return found

    async def follow(self, saw: Saw) -> None:
        async for pod in _changes(self.core.list_pod_for_all_namespaces):
            saw(pod.metadata.name, pod.metadata.resource_version)

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        async def handle(found: Any) -> None:
            started(found.metadata.name, found.metadata.resource_version)
            if write:
                patch = {"data": touched(found.data)}
                name = found.metadata.name
                await self.core.patch_namespaced_config_map(name, namespace, patch, _content_type=MERGE)

        await handled(_changes(self.core.list_namespaced_config_map, namespace, known=write), workers, handle)


async def _changes(listing: Any, *args: str, known: bool = False) -> AsyncIterator[Any]:
    listed = await listing(*args)
    for found in listed.items if known else ():
        yield found
    version = listed.metadata.resource_version
    async for event in watch.Watch().stream(listing, *args, resource_version=version):
        if event["type"] == "MODIFIED":
            yield event["object"]


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    await config.load_kube_config(kubeconfig)
    async with client.ApiClient() as api:
        yield Peer(client.CoreV1Api(api))
