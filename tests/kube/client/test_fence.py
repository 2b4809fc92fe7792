"""What a leader may still send, and what becomes of what it has sent."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from aiohttp import web

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.fence import CHUNK, Fence, behind
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import ApiError, Fenced, Unreachable
from elasticjob.kube.objects.views import CONFIG_MAP
from lab.build.objects import manifest
from lab.waiting import PATIENCE
from tests.kit.kube.stub import Answer, Stub, answer, hang, until

MARGIN = timedelta(seconds=5)
CREATED = answer(201, manifest("a"))


class Clock:
    """Moves when told."""

    time = 100.0

    def __call__(self) -> float:
        return self.time


@asynccontextmanager
async def fenced(*script: Answer) -> AsyncIterator[tuple[Stub, Client, Fence, Clock]]:
    clock = Clock()
    fence = Fence(clock, MARGIN)
    async with Stub() as stub, stub.client(VirtualClock()) as client:
        stub.then(*script)
        yield stub, client, fence, clock


async def write(client: Client) -> None:
    await client.create(CONFIG_MAP, manifest("a"), "ns")


def is_up(fence: Fence) -> bool:
    try:
        return fence.left() > 0
    except Fenced:
        return False


@pytest.mark.parametrize(
    ("moved", "now", "up"),
    [((), 100.0, False), ((110.0,), 109.9, True), ((110.0,), 110.0, False), ((110.0, 112.0), 111.0, True)],
)
def test_a_fence_is_up_until_the_moment_it_was_moved_to(
    moved: tuple[float, ...], now: float, up: bool
) -> None:
    clock = Clock()
    fence = Fence(clock, MARGIN)
    for until_ in moved:
        fence.move(until_)
    clock.time = now
    assert is_up(fence) is up


def test_a_fence_that_fell_stays_down() -> None:
    fence = Fence(Clock(), MARGIN)
    fence.move(110)
    fence.fall("the lease is another's")
    fence.move(120)
    with pytest.raises(Fenced, match="the lease is another's"):
        fence.left()


async def test_writes_behind_a_fence_that_is_down_are_not_sent() -> None:
    async with fenced() as (stub, client, fence, _):
        with behind(fence):
            for attempt in (
                client.create(CONFIG_MAP, manifest("a"), "ns"),
                client.apply(CONFIG_MAP, manifest("a"), manager="m", namespace="ns"),
                client.merge_patch(CONFIG_MAP, "a", {}, "ns"),
                client.json_patch(CONFIG_MAP, "a", [], "ns"),
                client.delete(CONFIG_MAP, "a", "ns"),
                client.raw("POST", "/api/v1/x"),
            ):
                with pytest.raises(Fenced):
                    await attempt
        assert stub.seen == []


async def test_reading_needs_no_leadership_and_nor_do_writes_of_others() -> None:
    async with fenced(answer(200, manifest("a")), CREATED) as (stub, client, fence, _):
        with behind(fence):
            await client.get(CONFIG_MAP, "a", "ns")
        await write(client)
        assert [seen.method for seen in stub.seen] == ["GET", "POST"]


async def test_tasks_that_a_leader_starts_are_behind_its_fence_too() -> None:
    async with fenced() as (stub, client, fence, _):
        with behind(fence):
            task = asyncio.create_task(write(client))
        with pytest.raises(Fenced):
            await task
        assert stub.seen == []


async def test_the_server_is_told_how_long_a_write_may_take() -> None:
    async with fenced(CREATED) as (stub, client, fence, _):
        fence.move(107.5)
        with behind(fence):
            await write(client)
        assert stub.seen[0].query == {"timeout": "7500ms"}
        assert stub.seen[0].headers["Content-Type"] == "application/json"


async def test_a_write_gets_no_more_time_than_is_left() -> None:
    async with fenced(hang()) as (_, client, fence, _):
        fence.move(100.05)
        with behind(fence), pytest.raises(Unreachable):
            await write(client)
        assert not fence.is_quiet(since=100)


async def test_what_is_repeated_asks_the_fence_again() -> None:
    async with fenced(answer(503, {})) as (stub, client, fence, clock):
        fence.move(110)
        with behind(fence):
            writing = asyncio.create_task(client.merge_patch(CONFIG_MAP, "a", {}, "ns"))
        await until(lambda: stub.seen and client.clock.next_due)  # type: ignore[attr-defined]
        clock.time = 111
        assert isinstance(client.clock, VirtualClock)
        await client.clock.advance(5)
        with pytest.raises(Fenced):
            await writing
        assert len(stub.seen) == 1


async def test_a_process_that_slept_between_its_look_and_the_bytes_sends_none() -> None:
    """Between the first look at the clock and the bytes lies a handshake, and whatever stops the process."""
    async with fenced(CREATED) as (stub, client, fence, clock):
        fence.move(110)
        made = fence.socket

        def slow(address: tuple[object, ...]) -> socket.socket:
            clock.time = 200
            return made(address)

        fence.socket = slow  # type: ignore[method-assign]
        with behind(fence), pytest.raises(Unreachable, match="Fenced"):
            await write(client)
        assert stub.seen == []


async def test_when_it_falls_what_is_under_way_is_cut() -> None:
    async with fenced(hang()) as (stub, client, fence, _):
        fence.move(1e9)
        with behind(fence):
            writing = asyncio.create_task(write(client))
        await until(lambda: stub.seen)
        await asyncio.to_thread(fence.fall, "lost")
        with pytest.raises(Unreachable):
            await asyncio.wait_for(writing, PATIENCE)


async def test_bytes_that_were_not_sent_are_discarded_when_it_falls() -> None:
    """The other side takes what its buffers hold, and reads nothing; what is still ours never arrives."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fence = Fence(Clock(), MARGIN)
        ours = fence.socket((socket.AF_INET, socket.SOCK_STREAM, 0))
        ours.connect(listening.getsockname())
        theirs, _ = listening.accept()
        ours.setblocking(False)
        sent = arrived = 0
        with suppress(BlockingIOError):
            while True:
                sent += ours.send(bytes(CHUNK))
        fence.fall("lost")
        with suppress(ConnectionResetError):
            while piece := theirs.recv(CHUNK):
                arrived += len(piece)
        assert arrived < sent
        with pytest.raises(OSError, match=r"reset|pipe|not connected"):
            ours.send(b"more")
        ours.close()
        theirs.close()


def test_what_is_not_acknowledged_is_given_up_by_the_kernel_well_before_another_may_lead() -> None:
    """Else the kernel of a process that is stopped sends it again when a network heals, however late."""
    with Fence(Clock(), MARGIN).socket((socket.AF_INET, socket.SOCK_STREAM, 0)) as ours:
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == struct.pack("ii", 1, 0)


@pytest.mark.parametrize("size", [0, 10, CHUNK + 1, 5 * CHUNK])
async def test_bodies_of_all_sizes_arrive_whole(size: int) -> None:
    async with fenced(answer(200, {})) as (stub, client, fence, _):
        fence.move(200)
        with behind(fence):
            await client.raw("PATCH", "/x", b"x" * size)
        assert stub.seen[0].body == b"x" * size


async def test_a_leader_has_connections_of_its_own_and_keeps_them() -> None:
    ports = list[object]()

    async def note(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return await CREATED(request)

    async with fenced(note, note, note) as (_, client, fence, _):
        fence.move(200)
        await write(client)
        with behind(fence):
            await write(client)
            await write(client)
        assert ports[1] == ports[2] != ports[0]


@pytest.mark.parametrize(
    ("answered", "settled"), [(CREATED, True), (answer(409, {}), True), (answer(504, {}), False)]
)
async def test_a_write_is_settled_once_the_server_has_decided(answered: Answer, settled: bool) -> None:
    async with fenced(answered) as (_, client, fence, _):
        fence.move(200)
        with behind(fence), suppress(ApiError, Unreachable):
            await write(client)
        assert fence.is_quiet(since=100) is settled
        assert fence.is_quiet(since=100.1)


async def test_a_write_under_way_is_not_settled() -> None:
    async with fenced(hang()) as (stub, client, fence, clock):
        fence.move(1e9)
        with behind(fence):
            writing = asyncio.create_task(write(client))
        await until(lambda: stub.seen)
        assert not fence.is_quiet(since=100)
        writing.cancel()
        await asyncio.wait({writing})
        assert not fence.is_quiet(since=100)
        clock.time = 200
        assert fence.is_quiet(since=185)
