"""kopf: an operator with `@kopf.index` or `@kopf.on.event`; the write is its handlers' `patch`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import kopf

from benchmarks.clients.peers import Saw, touched


@dataclass(frozen=True)
class Peer:
    async def fill(self, count: int) -> Any:
        registry, filled = _registry(), asyncio.Event()
        found: set[tuple[str | None, str]] = set()

        @kopf.index("pods", registry=registry)
        def pods(namespace: str | None, name: str, body: kopf.Body, **_: Any) -> Any:
            found.add((namespace, name))
            if len(found) == count:
                filled.set()
            return {(namespace, name): dict(body)}

        running = asyncio.create_task(_operator(registry))
        await filled.wait()
        return running

    async def follow(self, saw: Saw) -> None:
        registry = _registry()

        @kopf.on.event("pods", registry=registry)
        async def changed(type: str | None, name: str, meta: kopf.Meta, **_: Any) -> None:
            if type == "MODIFIED":
                saw(name, meta["resourceVersion"])

        await _operator(registry)

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        registry = _registry()

        @kopf.on.event("configmaps", registry=registry)
        async def changed(type: str | None, name: str, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
            if type != "MODIFIED" and not write:
                return
            started(name, body["metadata"]["resourceVersion"])
            if write:
                patch["data"] = touched(dict(body.get("data", {})))

        await _operator(registry, namespace, workers)


def _registry() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> Any:
        return kopf.login_with_kubeconfig(**kwargs)

    return registry


async def _operator(registry: kopf.OperatorRegistry, namespace: str = "", workers: int | None = None) -> None:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.queueing.worker_limit = workers
    where: dict[str, Any] = {"namespaces": [namespace]} if namespace else {"clusterwide": True}
    await kopf.operator(registry=registry, settings=settings, standalone=True, **where)


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Peer]:
    os.environ["KUBECONFIG"] = kubeconfig
    yield Peer()
