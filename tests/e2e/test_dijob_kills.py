"""A job whose coordinator asks for replicas while di-server and the operator are killed again and again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from elasticjob.api.diengine import names
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.devcluster import DevCluster
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD, SERVICE
from lab import programs as ours
from lab.build import manifests
from lab.build.dijobs import Caller, Told
from lab.build.manifests import changed
from lab.processes import Process
from lab.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True)
class Programs:
    """A cluster with an operator and a di-server, both processes."""

    client: Client
    operator: Process
    server: Process

    async def kill(self, chance: random.Random) -> None:
        """Kill one of the two without warning, and start it again."""
        if chance.random() < 0.5:
            await self.server.again()
        else:
            self.operator.kill()
            self.operator.spawn()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def programs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Programs]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    async with (
        DevCluster(folder) as cluster,
        Client(cluster.config()) as client,
        ours.operator(cluster.kubeconfig, folder) as operator,
        ours.di_server(cluster.kubeconfig, folder) as server,
    ):
        yield Programs(client, operator, server)


async def insisting(caller: Caller, method: str, path: str, body: dict[str, Any]) -> Told:
    """Call as DI-engine's client does: a connection that breaks is followed by the same request again."""
    while True:
        try:
            told = await caller.ask(method, path, body)
        except aiohttp.ClientError:
            await asyncio.sleep(0.1)
            continue
        if told.success:
            return told


async def test_nothing_is_doubled_and_nothing_is_left(
    programs: Programs, pytestconfig: pytest.Config
) -> None:
    chance, client = random.Random(7), programs.client
    manifest = changed(manifests.DIJOB, {"metadata": {"name": "cartpole"}})
    await client.create(DIJOB.untyped(), manifest, "default")
    await until(lambda: client.find(POD, "cartpole-coordinator", "default"), "the coordinator is made")
    stop = asyncio.Event()
    async with aiohttp.ClientSession() as session:
        caller = Caller(session, programs.server.url, "default")
        asking = asyncio.create_task(work(caller, client, stop))
        for _ in range(pytestconfig.getoption("--kills")):
            await programs.kill(chance)
            await asyncio.sleep(chance.random() * 0.3)
        stop.set()
        expected = await asking
        assert {name_of(url) for url in (await caller.get()).collectors} == expected
    assert await collectors(client) == expected
    await until(lambda: each_has_a_service(client), "each pod has a Service, and each Service a pod")
    await client.delete(DIJOB, "cartpole", "default")

    async def nothing_is_left() -> bool:
        left = await client.list(POD, "default", labels=names.OURS)
        services = await client.list(SERVICE, "default", labels=names.OURS)
        return not left and not services

    await until(nothing_is_left, "all pods and Services are gone")


async def each_has_a_service(client: Client) -> bool:
    pods = {pod.metadata.name for pod in await client.list(POD, "default", labels=names.OURS)}
    services = await client.list(SERVICE, "default", labels=names.OURS)
    return len(pods) > 1 and {each.metadata.name for each in services} == pods


async def work(caller: Caller, client: Client, stop: asyncio.Event) -> set[str]:
    """Ask for one to three collectors, delete some, have one replaced; returns those that should be there."""
    there, chance = set[str](), random.Random(11)
    while not stop.is_set():
        count = chance.randint(1, 3)
        told = await insisting(caller, "POST", "/replicas", {"collectors": {"replicas": count}})
        new = {name_of(url) for url in told.collectors}
        assert len(new) == count
        # What it had before, where di-server was killed before it could note that the answer was delivered.
        assert new.isdisjoint(there) or new <= there
        there |= new
        bad = chance.choice(sorted(there))
        told = await insisting(caller, "POST", "/replicas/failed", {"collectors": [bad]})
        there = there - {bad} | {name_of(url) for url in told.collectors}
        assert await collectors(client) == there
        if len(there) > 4:
            await insisting(caller, "DELETE", "/replicas", {"collectors": {"replicas": len(there) - 2}})
            left = await collectors(client)  # perhaps fewer than two: a killed di-server had begun
            assert left < there
            there = left
    return there


async def collectors(client: Client) -> set[str]:
    """The collectors that the API server has."""
    found = await client.list(POD, "default", labels=f"{names.LABEL_ROLE}=collector")
    return {pod.metadata.name for pod in found if pod.metadata.deletion_timestamp is None}


def name_of(url: str) -> str:
    """The pod in a URL."""
    return url.partition(":")[0].rpartition(".")[0]
