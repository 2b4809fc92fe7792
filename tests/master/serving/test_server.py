"""The master over real sockets, in virtual time: what a client sees, right and wrong."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from elasticjob.api.rpc.message import MSGPACK, Problem, Request
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.api.rpc.rendezvous import Join, World
from elasticjob.api.sizes.role import Range
from elasticjob.kube.clock import VirtualClock
from elasticjob.master.durable.store import File, Nowhere, Store, StoreError, restore
from elasticjob.master.serving.http import Server
from elasticjob.master.serving.saving import PAUSE
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Spec
from elasticjob.trainer.link.master import MasterClient, Stale
from lab.virtual.master import finish, join, report, watch
from tests.kit.kube.stub import until

TOKEN = "secret"
NAMES = ("node-0", "node-1")


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

    def post(self, path: str, body: bytes | io.BytesIO, **headers: str) -> Any:
        url = f"http://{self.master.address}/v1/{path}"
        return self.session.post(url, data=body, headers={"Authorization": f"Bearer {TOKEN}", **headers})

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(f"http://{self.master.address}{path}") as response:
            return response.status, await response.text()


@asynccontextmanager
async def serving(store: Store | None = None, token: str = TOKEN, **spec: Any) -> AsyncIterator[Agents]:
    """A master of a new job, whose state goes to a store, and a client of it."""
    clock = VirtualClock()
    job = Job(spec=Spec(job="digits", **spec), gathering=clock.now())
    async with (
        Master(job, token, store or Nowhere(), clock=clock) as master,
        aiohttp.ClientSession() as session,
    ):
        yield Agents(master, clock, session)


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    async with serving(bounds=Range(least=1, most=2)) as found:
        yield found


async def world_of_two(agents: Agents) -> World:
    await agents.call(watch("node-0"))
    await agents.call(watch("node-1"))
    first: World
    second: World
    first, second = await asyncio.gather(agents.call(join("node-0")), agents.call(join("node-1")))
    assert first == second
    return first


async def waiting(agents: Agents, *requests: Any) -> list[asyncio.Task[Any]]:
    """Send requests that wait, and return once all of them do."""
    tasks = [asyncio.create_task(agents.call(request)) for request in requests]
    await until(lambda: len(agents.master._polls) == len(requests))
    return tasks


async def test_two_nodes_become_a_world_as_soon_as_both_have_joined(agents: Agents) -> None:
    world = await world_of_two(agents)
    assert [member.node for member in world.members] == ["node-0", "node-1"]
    assert (world.round, world.size, world.batch_slots) == (1, 2, 2)


async def test_a_line_that_is_cut_tells_the_peer_at_once(agents: Agents) -> None:
    await world_of_two(agents)
    seen = agents.master.job.version
    cut, peer = await waiting(agents, watch("node-1", seen=seen), watch("node-0", seen=seen))
    cut.cancel()
    orders = await peer
    assert (orders.order, orders.round, orders.lost) == (Order.REGROUP, 1, ("node-1",))
    assert (await agents.call(join("node-0", after=1))).size == 1


async def test_who_is_tired_of_waiting_for_a_master_that_was_stopped_is_not_lost(agents: Agents) -> None:
    await world_of_two(agents)
    await agents.clock.advance(0.25)
    tired, _ = await waiting(agents, *(watch(name, seen=agents.master.job.version) for name in NAMES))
    agents.clock.jump(10)
    tired.cancel()
    await until(lambda: len(agents.master._polls) == 1)
    assert agents.master.job.running
    await agents.clock.advance(6)
    assert agents.master.job.ending
    assert agents.master.job.ending.reason == "node-0 is silent"


async def test_a_line_that_closes_between_two_questions_is_doubted_for_half_a_second(agents: Agents) -> None:
    await world_of_two(agents)
    async with aiohttp.ClientSession() as other:
        await Agents(agents.master, agents.clock, other).call(watch("node-1"))
    await until(lambda: len(agents.master._watching) < 2)
    (peer,) = await waiting(agents, watch("node-0", seen=agents.master.job.version))
    await agents.clock.advance(0.5)
    assert not peer.done()
    await agents.clock.advance(0.5)
    assert (await peer).reason == "node-1 is silent"


async def test_who_asks_again_on_another_line_is_not_lost(agents: Agents) -> None:
    await world_of_two(agents)
    seen = agents.master.job.version
    old, new = await waiting(agents, watch("node-1", seen=seen), watch("node-1", seen=seen))
    old.cancel()
    await until(lambda: len(agents.master._polls) == 1)
    assert agents.master.job.running
    new.cancel()
    await until(lambda: agents.master.job.running is None)


async def test_a_long_poll_wakes_when_the_job_changes(agents: Agents) -> None:
    await agents.call(watch("node-0"))
    await agents.call(watch("node-1"))
    (first,) = await waiting(agents, join("node-0"))
    await agents.call(join("node-1"))
    assert (await first).size == 2


async def test_a_long_poll_ends_without_news_after_its_time(agents: Agents) -> None:
    await agents.call(watch("node-0"))
    await agents.call(watch("node-1"))
    (poll,) = await waiting(agents, join("node-0", wait=3.0))
    for _ in range(4):
        await agents.clock.advance(0.75)
        await agents.call(watch("node-0"))
        await agents.call(watch("node-1"))
    assert await poll == 204
    seen = agents.master.job.version
    (poll,) = await waiting(agents, watch("node-0", seen=seen, wait=1.0))
    await agents.clock.advance(1.0)
    assert (await poll).order is Order.TRAIN


async def test_a_join_that_is_taken_back_waits_no_more(agents: Agents) -> None:
    await agents.call(watch("node-0"))
    await agents.call(watch("node-1"))
    (poll,) = await waiting(agents, join("node-0"))
    poll.cancel()
    await until(lambda: agents.master.job.nodes["node-0"].joined is None)


async def test_a_replaced_life_is_told_so_while_it_waits(agents: Agents) -> None:
    await world_of_two(agents)
    (old,) = await waiting(agents, watch("node-0", seen=agents.master.job.version))
    await agents.call(watch("node-0", "second"))
    problem = await old
    assert (problem.status, problem.code) == (409, "stale")


async def test_message_pack_travels_as_well(agents: Agents) -> None:
    body = msgspec.msgpack.encode(watch("node-0"))
    headers = {"Content-Type": MSGPACK}
    async with agents.post("nodes/watch", body, **headers) as response:
        assert response.content_type == MSGPACK
        assert msgspec.msgpack.decode(await response.read(), type=Orders).order is Order.TRAIN
    async with agents.post("nodes/watch", body, Accept="application/json", **headers) as response:
        assert response.content_type == "application/json"


def odd(request: Request[Any], **fields: Any) -> bytes:
    """The body of a request that no client would send."""
    return msgspec.json.encode({**msgspec.to_builtins(request), **fields})


ONE = watch("node-0")
DEEP = b'{"node":"node-0","mood":' + b"[" * 100_000
DEEP_PACK = b"\x81\xa4mood" + b"\x91" * 100_000
PACK = {"Content-Type": MSGPACK}
WRONG: dict[str, tuple[str, bytes, dict[str, str], int, str, str]] = {
    "token": ("nodes/watch", b"{}", {"Authorization": "Bearer no"}, 401, "unauthenticated", "Bearer"),
    "no token": ("nodes/watch", b"{}", {"Authorization": ""}, 401, "unauthenticated", "Secret"),
    "not ASCII": ("nodes/watch", b"{}", {"Authorization": "Bearer é"}, 401, "unauthenticated", "Secret"),
    "verb": (
        "nodes/destroy",
        b"{}",
        {},
        404,
        "unknown-verb",
        "nodes/destroy is not one of check/next, nodes/failure",
    ),
    "form": ("nodes/watch", b"{", {}, 400, "malformed", "truncated"),
    "field": ("nodes/watch", b'{"node": 3}', {}, 400, "malformed", "$.node"),
    "wait": ("nodes/watch", odd(ONE, wait=1e300), {}, 400, "malformed", "$.wait"),
    "slots": ("rendezvous/join", odd(join("node-0"), slots=0), {}, 400, "malformed", "$.slots"),
    "version": ("nodes/watch", odd(ONE, seen=2**62), {}, 400, "malformed", "$.seen"),
    "version of no master": ("nodes/watch", odd(ONE, seen=2**53), {}, 409, "refused", "the job is at 1"),
    "round of no master": ("nodes/watch", odd(ONE, round=2**53), {}, 409, "refused", "but the job is at 0"),
    "long name": ("nodes/watch", odd(ONE, node="n" * 254), {}, 400, "malformed", "$.node"),
    "no incarnation": ("nodes/watch", odd(ONE, incarnation=""), {}, 400, "malformed", "$.incarnation"),
    "step below 0": (
        "nodes/report",
        odd(report("node-0", 1, 1), progress={"step": -1}),
        {},
        400,
        "malformed",
        "$.progress.step",
    ),
    "brackets": ("nodes/watch", b"[" * 100_000, {}, 400, "malformed", "nodes/watch: "),
    "depth": ("nodes/watch", DEEP, {}, 400, "malformed", "nested deeper than it can be read"),
    "depth of MessagePack": ("nodes/watch", DEEP_PACK, PACK, 400, "malformed", "nested deeper"),
    "no UTF-8": ("nodes/watch", b'{"node": "\xff"}', {}, 400, "malformed", "nodes/watch: "),
    "size": ("nodes/watch", b" " * (1024 * 1024 + 1), {}, 413, "too-large", "1048576"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_with_a_call_is_said_and_changes_nothing(agents: Agents, case: str) -> None:
    path, body, headers, status, code, detail = WRONG[case]
    before = agents.master.job
    async with agents.post(path, io.BytesIO(body), **headers) as response:
        assert (response.status, response.content_type) == (status, "application/problem+json")
        problem = msgspec.json.decode(await response.read(), type=Problem)
    assert (problem.status, problem.code) == (status, code)
    assert detail in problem.detail
    assert agents.master.job is before


async def test_a_token_that_is_no_text_is_a_wrong_token(agents: Agents) -> None:
    host, port = agents.master.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /v1/nodes/watch HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    writer.write(head + b"Authorization: Bearer \xff\xfe\r\n\r\n")
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert b" 401 " in answer.splitlines()[0]
    assert b"WWW-Authenticate: Bearer" in answer


async def test_without_a_token_nobody_is_let_in() -> None:
    async with serving(token="") as found:
        for header in ("Bearer", "Bearer ", ""):
            assert (await found.call(watch("node-0"), Authorization=header)).status == 401


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/nodes/watch", "POST"), ("POST", "/status", "GET, HEAD"), ("DELETE", "/", "GET, HEAD")],
)
async def test_another_method_is_refused_with_the_right_one(
    agents: Agents, method: str, path: str, allowed: str
) -> None:
    async with agents.session.request(method, f"http://{agents.master.address}{path}") as response:
        assert (response.status, response.headers["Allow"]) == (405, allowed)


async def test_agents_never_need_the_general_server(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "general", None)
    async with MasterClient(agents.master.address, token=TOKEN, patience=0.0) as client:
        for name in NAMES:
            assert (await client.call(watch(name))).order is Order.TRAIN
        waiting = asyncio.ensure_future(client.call(join("node-0", wait=1.0)))
        await until(lambda: len(agents.master._polls) == 1)
        await agents.clock.advance(1.25)  # 204, upon which the client joins again
        await until(lambda: len(agents.master._polls) == 1)
        await client.call(join("node-1"))
        assert (await waiting).count == 2
        with pytest.raises(Stale, match="round 7 is over"):
            await client.call(report("node-0", 7, 1))


async def test_pages_and_calls_may_share_a_connection(agents: Agents) -> None:
    host, port = agents.master.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = msgspec.json.encode(watch("node-0"))
    head = f"POST /v1/nodes/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    call = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
    page = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    for sent in (call + page, call):
        writer.write(sent)
        for _ in range(sent.count(b"HTTP/1.1")):
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line[16:]) for line in answer.splitlines() if line.startswith(b"Content-Length")
            )
            await reader.readexactly(length)
            assert answer.startswith(b"HTTP/1.1 200 ")
    writer.close()
    await writer.wait_closed()
    await until(lambda: not agents.master._watching)
    await agents.clock.advance(0.75)
    assert agents.master.job.nodes["node-0"].beat is None


async def test_fields_of_a_newer_peer_are_ignored(agents: Agents) -> None:
    async with agents.post("nodes/watch", odd(ONE, mood="good")) as response:
        assert response.status == 200


async def test_a_body_of_unknown_length_is_limited_too(agents: Agents) -> None:
    async def much() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 65536

    url = f"http://{agents.master.address}/v1/nodes/watch"
    async with agents.session.post(
        url, data=much(), headers={"Authorization": f"Bearer {TOKEN}"}
    ) as response:
        assert response.status == 413


async def test_the_verdict_reaches_all_who_watch(agents: Agents) -> None:
    await world_of_two(agents)
    (peer,) = await waiting(agents, watch("node-1", seen=agents.master.job.version))
    await agents.call(finish("node-0", 1))
    await agents.call(finish("node-1", 1))
    assert (await peer).order is Order.STOP
    assert agents.master.ended.is_set()
    assert (await agents.call(join("node-2"))).code == "stopping"
    telling = asyncio.create_task(agents.master.wait_until_told(60))
    await agents.clock.advance(1)
    assert not telling.done()
    await agents.call(watch("node-0"))
    await agents.clock.advance(0.25)
    await telling


async def test_pages_say_how_the_job_goes(agents: Agents) -> None:
    await world_of_two(agents)
    await agents.call(report("node-0", 1, 40, loss=0.5, samples=640))
    code, metrics = await agents.get("/metrics")
    assert code == 200
    for line in ('step{job="digits"} 40.0', 'loss{job="digits"} 0.5', 'world_size{job="digits"} 2.0'):
        assert f"elasticjob_{line}" in metrics
    assert 'elasticjob_nodes{job="digits",state="training"} 2.0' in metrics
    status = msgspec.json.decode((await agents.get("/status"))[1])
    assert status["sentence"] == "round 1 trains with 2 nodes, 2 workers"
    assert [node["state"] for node in status["nodes"]] == ["training", "training"]
    assert status["rounds"][0]["reason"] == "the job starts with 2 nodes"
    assert (await agents.get("/healthz")) == (await agents.get("/readyz")) == (200, "ok\n")
    assert "<title>elasticjob</title>" in (await agents.get("/"))[1]
    assert (await agents.get("/secrets"))[0] == 404


async def test_the_snapshot_is_written_when_a_world_changes_and_at_the_end(tmp_path: Path) -> None:
    store = File(tmp_path / "job.json")
    async with serving(store) as agents:
        world = await agents.master.ask(join("node-0"))
        await until(lambda: (tmp_path / "job.json").exists())
        await agents.master.ask(report("node-0", 1, 7))
    found = restore(await store.load(), agents.master.job.spec, agents.clock.now())
    assert found.world == world
    assert found.training.progress is not None
    assert found.training.progress.step == 7


async def test_a_node_that_has_finished_has_under_the_next_master_too(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    async with serving(File(file), bounds=Range(least=2, most=2)) as agents:
        master, clock = agents.master, agents.clock

        def kept(name: str) -> bool:
            return restore(file.read_bytes(), master.job.spec, clock.now()).nodes[name].finished

        await asyncio.gather(*(master.ask(join(name)) for name in NAMES))
        await until(file.exists)
        await clock.advance(2)
        await master.ask(finish("node-1", 1))
        await until(lambda: kept("node-1"), clock, longest=PAUSE)
        assert not kept("node-0")


async def test_a_master_that_was_stopped_gives_nobody_up() -> None:
    async with serving() as agents:
        master, clock = agents.master, agents.clock
        await master.ask(watch("node-0"))
        await master.ask(join("node-0"))
        await clock.advance(0.25)
        clock.jump(60)
        await clock.advance(0.5)
        soon = master.job
        await clock.advance(6)
        assert (soon.ending, master.job.ending and master.job.ending.lost) == (None, ("node-0",))


class Stubborn:
    """A store that fails a few times."""

    def __init__(self, failures: int = 2, error: Exception | None = None) -> None:
        self.saved: list[bytes] = []
        self.failures, self.error = failures, error or StoreError("no room")

    async def load(self) -> bytes | None:
        return None

    async def save(self, data: bytes) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise self.error
        self.saved.append(data)


@pytest.mark.parametrize("error", [StoreError("no room"), ZeroDivisionError("a defect")])
async def test_a_store_that_fails_holds_nobody_up_and_is_tried_again(error: Exception) -> None:
    store = Stubborn(error=error)
    async with serving(store) as agents:
        assert (await agents.master.ask(join("node-0"))).round == 1
        await agents.clock.advance(2)
        assert len(store.saved) == 1


async def test_a_store_that_fails_for_long_is_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    store = Stubborn(failures=9)
    async with serving(store) as agents:
        await agents.master.ask(join("node-0"))
        await agents.clock.advance(3)
        assert 'elasticjob_snapshot_unsaved_seconds{job="digits"} 3.0' in (await agents.get("/metrics"))[1]
        await agents.clock.advance(130)
        assert store.saved
        assert 'elasticjob_snapshot_unsaved_seconds{job="digits"} 0.0' in (await agents.get("/metrics"))[1]
    levels = [record.levelname for record in caplog.records if "is not saved" in record.message]
    assert levels == ["WARNING"] * 7 + ["ERROR"] * 2


async def test_a_heartbeat_alone_is_nothing_to_save() -> None:
    store = Stubborn(failures=0)
    async with serving(store) as agents:
        master, clock = agents.master, agents.clock
        await master.ask(watch("node-0"))
        await master.ask(join("node-0"))
        await clock.advance(1)
        saved = len(store.saved)
        for _ in range(30):
            await master.ask(watch("node-0", round=1))
            await clock.advance(1)
        assert len(store.saved) == saved
        await master.ask(report("node-0", 1, 7))
        await clock.advance(1)
        assert len(store.saved) == saved + 1
