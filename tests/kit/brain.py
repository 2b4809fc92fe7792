"""Brain's server, and a cluster as Brain finds it: jobs that run, and machines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from elasticjob.api.rpc.brain import job_token
from elasticjob.api.rpc.message import Problem, Request
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.brain.access import Access
from elasticjob.brain.answers import Answers
from elasticjob.brain.server import Server
from elasticjob.brain.store import Store
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE
from elasticjob.master.cluster.brain import Brain
from elasticjob.sizing.table import ALGORITHMS
from lab.build.jobs import role

NOW: Final = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY: Final = b"a key of the operator and of Brain"
TWO: Manifest = {"replicas": 2, "resource": {"cpu": "1", "memory": "1Gi"}}


@dataclass(frozen=True)
class Site:
    """A Brain at an address, and a session of a master or reader."""

    address: str
    session: aiohttp.ClientSession
    now: Callable[[], datetime] = lambda: NOW
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    async def ask(self, request: Request[Any], token: str | None = None) -> Any:
        """Ask as the real client of masters does."""
        chosen = job_token(KEY, request.job.uid) if token is None else token  # type: ignore[attr-defined]
        return await Brain(self.address, lambda: chosen, self.session, self.now).call(request)

    async def post(self, path: str, body: bytes, token: str = "") -> tuple[int, Problem]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.post(f"http://{self.address}{path}", data=body, headers=headers) as reply:
            return reply.status, msgspec.json.decode(await reply.read(), type=Problem)

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(f"http://{self.address}{path}", headers=headers) as reply:
            return reply.status, await reply.json(content_type=None)


@asynccontextmanager
async def serving(
    store: Store, folder: Path, reading: str = "", plans: bool = False, **more: Any
) -> AsyncIterator[Site]:
    """Brain's server, with the token of readers if there is one."""
    (folder / "key").write_bytes(KEY + b"\n")
    (folder / "reading").write_text(reading)
    access = Access(folder / "key", folder / "reading" if reading else None)
    answers = Answers(store, ALGORITHMS, plans=plans)
    registry = CollectorRegistry()
    async with (
        Server(store, answers, access, lambda: NOW, registry, **more) as server,
        aiohttp.ClientSession() as session,
    ):
        yield Site(server.address, session, registry=registry)


async def running_job(
    client: Client, namespace: str, name: str, *, most: int = 4, size: Manifest = TWO
) -> Manifest:
    """Make a job in cluster mode that runs with workers of this size, and may have one to `most`."""
    worker = role(None, minReplicas=1, maxReplicas=most)
    spec = {"optimizeMode": "cluster", "replicaSpecs": {"worker": worker}}
    made = await client.create(ELASTICJOB.untyped(), {"metadata": {"name": name}, "spec": spec}, namespace)
    running = {"status": {"phase": "Running"}}
    await client.merge_patch(ELASTICJOB, name, running, namespace, subresource="status")
    about = {"name": name, "labels": {"elasticjob.dlrover/name": name}}
    placed = {"selector": {"name": name}, "replicaResourceSpecs": {"worker": size}}
    await client.create(JOBRESOURCE.untyped(), {"metadata": about, "spec": placed}, namespace)
    return made


async def machine(client: Client, *, cpu: str, memory: str, pods: str, **labels: str) -> None:
    """Make a machine that is ready."""
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}, "conditions": [ready]}
    about = {"name": "shared", "labels": labels}
    await client.create(NODE.untyped(), {"metadata": about, "status": status})
