"""Load for the API server: pods as in a busy cluster, and writes by plain aiohttp."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from elasticjob.kube.client import kubeconfig

Manifest = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
IN_FLIGHT: Final = 16
"""Writes under way at once; more make the server no faster on two cores."""

PATIENCE: Final = 30.0
FOREVER: Final = aiohttp.ClientTimeout(total=None)

CONTAINER: Final[Manifest] = {
    "name": "main",
    "image": "registry.example.com/team/trainer:2026.11",
    "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
    "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    "ports": [{"containerPort": 8080, "name": "http"}],
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "volumeMounts": [
        {"name": "config", "mountPath": "/etc/train"},
    ],
}


def pod(number: int, namespace: str) -> Manifest:
    """Return a pod that weighs about 4.7 KB once the server and a kubelet have written to it."""
    labels = {"app": "bench", "app.kubernetes.io/name": "trainer", "index": str(number % 4)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number:05}",
            "namespace": namespace,
            "labels": labels,
            "annotations": {"round": "0", "example.com/config-hash": "9f86d081884c7d659a2feaa0c55ad015"},
        },
        "spec": {
            "containers": [CONTAINER],
            "volumes": [
                {"name": "config", "configMap": {"name": "trainer"}},
            ],
            "schedulerName": "nobody",  # no scheduler's writes come between the measured ones
            "automountServiceAccountToken": False,
        },
    }


def status(number: int) -> Manifest:
    """Return what a kubelet would write into a pod's status."""
    at = "2026-01-01T00:00:00Z"
    ready = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ip = f"10.1.{number // 250}.{number % 250 + 1}"
    container = {
        "name": "main",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": CONTAINER["image"],
        "imageID": f"registry.example.com/team/trainer@sha256:{number:064x}",
        "containerID": f"containerd://{number:064x}",
        "state": {"running": {"startedAt": at}},
    }
    return {
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "startTime": at,
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": at} for type_ in ready],
            "containerStatuses": [container],
        }
    }


class Plain:
    """An API client of plain aiohttp: the upper limit for any client on it."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self.server = server

    async def send(
        self, method: str, path: str, body: Manifest | None = None, type_: str = "application/json"
    ) -> bytes:
        """Return the body of a good answer. Raises ClientResponseError for any other."""
        content = {"Content-Type": type_} if body is not None else {}
        encoded = None if body is None else msgspec.json.encode(body)
        async with self._session.request(
            method, self.server + path, data=encoded, headers=content
        ) as response:
            answer = await response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path}: {response.status} {answer[:300]!r}")
            return answer

    async def namespace(self, name: str) -> None:
        """Create a namespace and wait for its service account, without which no pod is admitted."""
        await self.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        path, until = f"/api/v1/namespaces/{name}/serviceaccounts", time.monotonic() + PATIENCE
        while b'"name":"default"' not in await self.send("GET", path):
            if time.monotonic() > until:
                raise RuntimeError(f"{name} has no service account: does the controller manager run?")
            await asyncio.sleep(0.05)

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """Yield the lines of an endless response."""
        async with self._session.get(self.server + path, timeout=FOREVER) as response:
            async for line in response.content:
                yield line

    async def chunks(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the chunks of an endless response."""
        async with self._session.get(self.server + path, timeout=FOREVER) as response:
            async for chunk in response.content.iter_any():
                yield chunk


@asynccontextmanager
async def plain(path: Path, user_agent: str = "bench-plain") -> AsyncIterator[Plain]:
    """Open a plain session as the user of a kubeconfig."""
    config = await kubeconfig.load(str(path), None)
    connector = aiohttp.TCPConnector(limit=0, ssl=config.tls() or True)
    headers = {"User-Agent": user_agent, "Accept": "application/json", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=1 << 18) as session:
        yield Plain(session, config.server)


async def all_of(calls: Iterable[Callable[[], Awaitable[object]]], at_once: int = IN_FLIGHT) -> float:
    """Make all calls, some at once; returns the seconds it took."""
    waiting = deque(calls)
    began = time.monotonic()

    async def work() -> None:
        while waiting:
            await waiting.popleft()()

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(work())
    return time.monotonic() - began


async def maps(server: Plain, namespace: str, count: int) -> None:
    """Create small ConfigMaps."""
    path, kind = f"/api/v1/namespaces/{namespace}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"}
    named = [{"name": f"map-{number:05}", "namespace": namespace} for number in range(count)]
    made = [{**kind, "metadata": metadata, "data": {"count": "0"}} for metadata in named]
    await all_of([partial(server.send, "POST", path, manifest) for manifest in made])


async def fill(server: Plain, namespace: str, numbers: Iterable[int]) -> None:
    """Create pods and write their status, as a kubelet would."""
    path = f"/api/v1/namespaces/{namespace}/pods"

    async def both(number: int) -> None:
        await server.send("POST", f"{path}?fieldManager=kube-controller-manager", pod(number, namespace))
        name = f"{path}/pod-{number:05}/status?fieldManager=kubelet"
        await server.send("PATCH", name, status(number), MERGE)

    await all_of([partial(both, number) for number in numbers])
