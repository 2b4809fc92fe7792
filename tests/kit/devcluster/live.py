"""A dev cluster for a test, and waiting for what its watches show."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from elasticjob.devcluster import Backoff, DevCluster, VirtualNode
from elasticjob.devcluster.controllers.endpoints import ENDPOINT_SLICE, EndpointSlice
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import EVENT, POD, SERVICE, Event, Pod, Service
from elasticjob.kube.operator.operator import Operator
from lab.processes import run
from lab.running import running
from lab.waiting import PATIENCE

T = TypeVar("T")
QUICK = Backoff(timedelta(milliseconds=100), timedelta(seconds=1))


@dataclass
class Live:
    """A running cluster, and what a watcher of it sees; pods are named in one namespace of it."""

    cluster: DevCluster
    client: Client
    pods: Cache[Pod]
    events: Cache[Event]
    services: Cache[Service]
    slices: Cache[EndpointSlice]
    changed: asyncio.Event
    namespace: str = "default"

    async def until(self, found: Callable[[], T | None]) -> T:
        """The first true answer of `found`, asked again after each change that a watch shows."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self.changed.clear()
                if answer := found():
                    return answer
                await self.changed.wait()

    def pod(self, name: str) -> Pod | None:
        return self.pods.get(Key(self.namespace, name))

    async def pod_where(self, name: str, holds: Callable[[Pod], object]) -> Pod:
        """The pod, once `holds`."""
        return await self.until(lambda: pod if (pod := self.pod(name)) is not None and holds(pod) else None)

    async def finished(self, name: str) -> Pod:
        return await self.pod_where(name, lambda pod: pod.status.phase in ("Succeeded", "Failed"))

    async def runs(self, name: str) -> Pod:
        return await self.pod_where(name, lambda pod: pod.status.phase == "Running")

    async def delete(self, name: str, grace: int | None = None) -> None:
        """Delete the pod, and return once it has gone."""
        await self.client.delete(POD, name, self.namespace, grace=grace)
        await self.until(lambda: self.pod(name) is None)

    async def start(
        self, name: str, *command: str, labels: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Create a pod of one container that runs `command`; fields of the container under `container`."""
        await self.client.create(
            POD, manifest(name, *command, namespace=self.namespace, labels=labels, **spec)
        )

    async def logs(self, name: str, **options: Any) -> str:
        return b"".join([piece async for piece in self.client.logs(name, self.namespace, **options)]).decode()

    async def logged(self, name: str, word: str) -> None:
        """Return once the pod's log has the word."""
        await self.runs(name)
        log = b""
        async for piece in self.client.logs(name, self.namespace, follow=True):
            log += piece
            if word.encode() in log:
                return
        raise AssertionError(f"the log of {name} ended without {word!r}: {log.decode()}")

    def reasons(self, name: str) -> set[str]:
        events = self.events.list(self.namespace)
        return {event.reason for event in events if event.involved_object.name == name}

    async def cleared(self) -> None:
        """Delete all pods of the namespace, and return once they have gone."""
        for pod in self.pods.list(self.namespace):
            with contextlib.suppress(NotFound):
                await self.client.delete(POD, pod.metadata.name, self.namespace, grace=0)
        await self.until(lambda: not self.pods.list(self.namespace))


def manifest(
    name: str, *command: str, namespace: str = "default", labels: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod of one container, which never restarts unless `spec` says otherwise."""
    container = {
        "name": "main",
        "image": "python:3.11",
        "command": list(command),
        **spec.pop("container", {}),
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


@asynccontextmanager
async def live(state: Path, *, nodes: tuple[VirtualNode, ...] | None = None) -> AsyncIterator[Live]:
    """A cluster with short back-offs, and a watcher beside it."""
    async with (
        DevCluster(state, nodes=nodes, restart=QUICK, pull=QUICK) as cluster,
        Client(cluster.config()) as client,
    ):
        operator = Operator(client, name="watcher", probes=None, signals=False, grace=0.1)
        changed = asyncio.Event()
        caches: Any = [operator.cache(kind) for kind in (POD, EVENT, SERVICE, ENDPOINT_SLICE)]
        for cache in caches:
            cache.subscribe(lambda change: changed.set())
        async with running(operator):
            pods, events, services, slices = caches
            yield Live(cluster, client, pods, events, services, slices, changed)


async def kubectl(cluster: DevCluster, *words: str) -> tuple[int, str]:
    """The exit code of a command, and all it said."""
    code, output = await run("kubectl", "--kubeconfig", cluster.kubeconfig, *words)
    return code or 0, output


def is_alive(pid: int) -> bool:
    """Does a process of that id run (and not merely wait to be reaped)?"""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
