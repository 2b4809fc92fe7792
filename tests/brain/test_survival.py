"""A whole Brain whose neighbours are bad: jobs that lie, writes that are refused, servers that are away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.brain import main
from elasticjob.brain.fulfilment.planners import Share
from elasticjob.brain.monitor import watch
from elasticjob.brain.settings import Settings
from elasticjob.brain.store import Store, open_store
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.errors import Forbidden
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import EVENT, POD
from lab.clusters.served import Served
from lab.programs.postgres import Postgres
from lab.troubles.switch import Switch
from lab.waiting import until
from tests.kit.brain import machine, running_job

METRICS: Final = """\
elasticjob_world_nodes 2
elasticjob_steps_per_second 5
elasticjob_node_memory_bytes{node="worker-0",role="worker"} %s
"""
AHEAD: Final = timedelta(minutes=10)
NOBODY: Final = 9
"""A port on which nothing listens."""


class Ahead(SystemClock):
    """The clock of a Brain's machine that nobody has set."""

    def now(self) -> datetime:
        return super().now() + AHEAD


@dataclass
class Place:
    """A cluster with a Brain, and what they are to do wrong."""

    client: Client
    namespace: str
    store: Store
    url: str
    line: Switch
    brain: asyncio.Task[None]
    refused: set[str] = field(default_factory=set)
    """Jobs whose ScalePlans the API server refuses."""

    async def job(self, name: str, master: str = "") -> str:
        """Make a job of two workers, which may have one to four; return its uid."""
        made = await running_job(self.client, self.namespace, name)
        if master:
            owner: Manifest = {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "name": name}
            owner |= {"uid": made["metadata"]["uid"], "controller": True}
            await self.pod(f"{name}-master", name, "master", master, ownerReferences=[owner])
        return str(made["metadata"]["uid"])

    async def pod(self, name: str, job: str, kind: str, address: str, index: str = "0", **about: Any) -> None:
        labels = {"name": job, "replica-type": kind, "replica-index": index}
        about["labels"] = {f"elasticjob.dlrover/{label}": value for label, value in labels.items()}
        spec = {"containers": [{"name": "main", "image": "i"}]}
        await self.client.create(POD, {"metadata": {"name": name, **about}, "spec": spec}, self.namespace)
        status = {"status": {"phase": "Running", "podIP": address}}
        await self.client.merge_patch(POD, name, status, self.namespace, subresource="status")

    async def is_known(self, name: str) -> None:
        async def known() -> bool:
            status, found = await self.get("jobs")
            return status == 200 and name in {job["name"] for job in found["jobs"]}

        await self.until(known, f"Brain knows {name}")

    async def samples_come(self, name: str) -> None:
        async def count() -> int:
            status, found = await self.get(f"jobs/{self.namespace}/{name}")
            return len(found["samples"]) if status == 200 else 0

        before = await count()

        async def come() -> bool:
            return await count() > before + 1

        await self.until(come, f"samples of {name} come")

    async def until(self, ask: Any, what: str) -> None:
        await until(ask, what)
        assert not self.brain.done(), "Brain has ended"

    async def get(self, path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/v1/{path}") as reply:
            return reply.status, await reply.json(content_type=None)

    async def planned(self) -> set[str]:
        return {plan.spec.owner_job for plan in await self.client.list(SCALEPLAN, self.namespace)}


@asynccontextmanager
async def masters(*memory: str) -> AsyncIterator[int]:
    """Masters at 127.0.0.1, 127.0.0.2 and so on, on one port, whose workers use so much memory."""
    async with AsyncExitStack() as stack:
        port = 0
        for number, used in enumerate(memory, 1):
            app = web.Application()
            app.router.add_get("/metrics", partial(answer, METRICS % used))
            runner = web.AppRunner(app)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, f"127.0.0.{number}", port).start()
            port = runner.addresses[0][1]
        yield port


async def answer(text: str, _: web.Request) -> web.Response:
    return web.Response(text=text)


@asynccontextmanager
async def place(
    served: Served, client: Client, namespace: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    await install(client)
    port = urlsplit(served.url).port or 0
    settings = Settings(namespace=namespace, probes="", share=Share.FULFILMENT, every=0.1, settle=0, port=0)
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(Switch(port))
        monkeypatch.setattr(watch, "MASTER_PORT", await stack.enter_async_context(masters("1e9", "+Inf")))
        store = await stack.enter_async_context(open_store(database))
        config = served.config()
        config = replace(config, server=served.url.replace(f":{port}", f":{line.port}"))
        own = await stack.enter_async_context(Client(config, clock=Ahead()))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        operator = main.compose(own, settings, store, session, signals=False)
        server = await stack.enter_async_context(main.serving(settings, store, operator.metrics.registry))
        running = asyncio.create_task(operator.run())
        found = Place(client, namespace, store, f"http://{server.address}", line, running)
        create = own.create

        async def refusing(kind: Kind[Any], manifest: Manifest, *more: Any, **others: Any) -> Any:
            if manifest.get("spec", {}).get("ownerJob") in found.refused:
                raise Forbidden(403, "Forbidden", "exceeded quota: count/scaleplans")
            return await create(kind, manifest, *more, **others)

        monkeypatch.setattr(own, "create", refusing)
        yield found
        operator.stop()
        await running


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
async def test_brain_goes_on(
    served: Served,
    client: Client,
    namespace: str,
    database: str,
    postgres_server: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with place(served, client, namespace, database, monkeypatch) as at:
        # a master that shows +Inf, a pod with the labels of a job, a plan that is refused
        at.refused = {"good"}
        await at.pod("tenant", "good", "worker", "127.0.0.9", index="x")
        await at.job("good", "127.0.0.1")
        await at.job("evil", "127.0.0.2")
        await at.samples_come("good")
        await at.is_known("evil")
        status, found = await at.get(f"jobs/{namespace}/evil")
        assert (status, found["samples"]) == (200, [])

        async def told() -> bool:
            events = [each for each in await client.list(EVENT, namespace) if each.reason == "PassFailed"]
            notes = {each.involved_object.name: each.message for each in events}
            lies, waits = notes.get("evil", ""), notes.get("good", "")
            return "memory_bytes of worker-0 is inf" in lies and "quota" in waits

        await machine(client, cpu="16", memory="64Gi", pods="99")
        await at.until(told, "users of both jobs are told")
        assert "good" not in await at.planned()

        # the database
        postgres_server.stop()
        assert (await at.get("jobs"))[0] == 503
        await at.job("meanwhile")
        await asyncio.sleep(0.3)  # three looks of each loop
        assert not at.brain.done()
        postgres_server.start()
        await at.is_known("meanwhile")
        await at.samples_come("good")

        # the API server
        at.line.ports = [NOBODY]
        at.line.cut()
        await at.job("later")
        await at.samples_come("good")
        at.line.ports = [urlsplit(served.url).port or 0]
        await at.is_known("later")

        # what was refused is written once it may be
        at.refused = set()

        async def written() -> bool:
            return "good" in await at.planned()

        await at.until(written, "the plan is written")
