"""The master over real sockets, in virtual time: what a client sees, right and wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from elasticjob.api.rpc.message import Problem
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.api.rpc.rendezvous import Join, Recovery, World
from elasticjob.kube.clock import VirtualClock
from elasticjob.master.job import Bounds, Job, Spec
from elasticjob.master.server import Master
from elasticjob.master.store import Nowhere

TOKEN = "secret"


class Agents:
    """A few agents that speak to one master."""

    def __init__(self, master: Master, clock: VirtualClock, session: aiohttp.ClientSession) -> None:
        self.master, self.clock, self.session = master, clock, session

    async def call(self, request: Any, **headers: str) -> Any:
        body = msgspec.json.encode(request)
        async with self.post(request.PATH, body, **headers) as response:
            data = await response.read()
            if response.status != 200:
                return response.status if not data else msgspec.json.decode(data, type=Problem)
            kinds: dict[type, type] = {Join: World, Watch: Orders}
            return msgspec.json.decode(data, type=kinds.get(type(request), dict))

    def post(self, path: str, body: bytes, **headers: str) -> Any:
        url = f"http://{self.master.address}/v1/{path}"
        return self.session.post(url, data=body, headers={"Authorization": f"Bearer {TOKEN}", **headers})

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"http://{self.master.address}{path}") as response:
            return response.status, await response.text()


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    clock = VirtualClock()
    spec = Spec(job="digits", bounds=Bounds(minimum=1, maximum=2))
    job = Job(spec=spec, gathering=clock.now())
    async with (
        Master(job, TOKEN, Nowhere(), clock=clock) as master,
        aiohttp.ClientSession() as session,
    ):
        yield Agents(master, clock, session)


def watch(name: str, **more: Any) -> Watch:
    return Watch(node=name, role="worker", index=int(name[-1]), incarnation=f"{name}-life", **more)


def join(name: str, **more: Any) -> Join:
    given = {"slots": 1, "address": "127.0.0.1", "port": 1, "recovery": Recovery.IN_PROCESS, **more}
    return Join(node=name, role="worker", index=int(name[-1]), incarnation=f"{name}-life", **given)


async def until(true: Any) -> None:
    """Let sockets work until `true()`; the test's own timeout bounds it."""
    while not true():
        await asyncio.sleep(0)


async def world_of_two(agents: Agents) -> World:
    await agents.call(watch("node-0"))
    await agents.call(watch("node-1"))
    worlds = await asyncio.gather(agents.call(join("node-0")), agents.call(join("node-1")))
    assert worlds[0] == worlds[1]
    return worlds[0]


async def test_two_nodes_become_a_world_as_soon_as_both_have_joined(agents: Agents) -> None:
    world = await world_of_two(agents)
    assert [member.node for member in world.members] == ["node-0", "node-1"]
    assert (world.round, world.size, world.batch_slots) == (1, 2, 2)


async def test_a_line_that_is_cut_tells_the_peer_at_once(agents: Agents) -> None:
    await world_of_two(agents)
    seen = agents.master.job.version
    cut = asyncio.create_task(agents.call(watch("node-1", seen=seen)))
    peer = asyncio.create_task(agents.call(watch("node-0", seen=seen)))
    await until(lambda: len(agents.master._polls) == 2)
    cut.cancel()
    orders = await peer
    assert (orders.order, orders.round, orders.lost) == (Order.REGROUP, 1, ("node-1",))
    assert (await agents.call(join("node-0", after=1))).size == 1
