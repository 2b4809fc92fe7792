"""lightkube: `AsyncClient.list` in chunks, `watch` from the list's resourceVersion, `patch`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

from benchmarks.clients.peers import Saw, touched
from benchmarks.clients.peers.loop import handled

CHUNK = 500


@dataclass(frozen=True)
class Peer:
    client: AsyncClient

    async def fill(self, count: int) -> Any:
        found = {}
        async for pod in self.client.list(Pod, namespace="*", chunk_size=CHUNK):
            assert pod.metadata is not None
            found[pod.metadata.namespace, pod.metadata.name] = pod
        assert len(found) == count
        return found

    async def follow(self, saw: Saw) -> None:
        async for pod in self._changes(Pod, "*"):
            saw(pod.metadata.name, pod.metadata.resourceVersion)

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        async def handle(found: Any) -> None:
            name = found.metadata.name
            started(name, found.metadata.resourceVersion)
            if write:
                patch = {"data": touched(found.data)}
                await self.client.patch(
                    ConfigMap, name, patch, namespace=namespace, patch_type=PatchType.MERGE
                )

        await handled(self._changes(ConfigMap, namespace, known=write), workers, handle)

    async def _changes(self, kind: Any, namespace: str, *, known: bool = False) -> AsyncIterator[Any]:
        listed = self.client.list(kind, namespace=namespace, chunk_size=CHUNK)
        found = [each async for each in listed]
        for each in found if known else ():
            yield each
        version = listed.resourceVersion
        async for type_, each in self.client.watch(kind, namespace=namespace, resource_version=version):
            if type_ == "MODIFIED":
                yield each


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    async with AsyncClient(config=KubeConfig.from_file(kubeconfig)) as client:
        yield Peer(client)
