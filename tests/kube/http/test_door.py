"""How many connections a server takes, and how long it waits for what they send."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest
from aiohttp import web

from elasticjob.kube.http.door import Bounds, Door
from elasticjob.kube.http.serving import IDLE, Runner
from elasticjob.kube.webhook.certs.certificates import issue, new_authority, server_context
from lab.waiting import PATIENCE
from tests.kit.kube.stub import until

AUTHORITY = new_authority("test", datetime.now(UTC))
TRUSTING = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT = Bounds(head=0.1, body=0.1)

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(
    bounds: Bounds, *, tls: bool = False, idle: float = IDLE
) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A server that answers a POST with its body and a GET once it may; its port, and what lets it answer."""
    may = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.method == "POST":
            return web.Response(body=await request.read())
        await may.wait()
        return web.Response(text="late")

    app = web.Application()
    app.router.add_route("*", "/", answer)
    runner = Runner(app, shutdown_timeout=0.01, handler_cancellation=True, keepalive_timeout=idle)
    await runner.setup()
    context = server_context(issue(AUTHORITY, ["127.0.0.1"], datetime.now(UTC))) if tls else None
    try:
        yield await runner.listen("127.0.0.1", 0, context, bounds), may
    finally:
        await runner.cleanup()


async def connected(port: int, source: str = "127.0.0.1", *, tls: bool = False) -> Stream:
    context = TRUSTING if tls else None
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0), ssl=context)


async def rest(stream: Stream) -> bytes:
    """What comes until the server closes the connection."""
    try:
        return await asyncio.wait_for(stream[0].read(), PATIENCE)
    except ConnectionResetError:
        return b""


async def is_served(stream: Stream) -> bool:
    """Whether a request is answered; the connection stays open."""
    try:
        stream[1].write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok")
        answer = await asyncio.wait_for(stream[0].readuntil(b"\r\n\r\nok"), PATIENCE)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return answer.startswith(b"HTTP/1.1 200")


@pytest.fixture
async def streams() -> AsyncIterator[list[Stream]]:
    found: list[Stream] = []
    yield found
    for _, writer in found:
        writer.transport.abort()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
    ],
    ids=["nothing", "line", "header", "body", "chunk"],
)
async def test_half_a_request_is_not_waited_for(streams: list[Stream], sent: bytes, tls: bool) -> None:
    async with serving(SHORT, tls=tls) as (port, _):
        with suppress(ConnectionError):  # a slow handshake is not waited for either
            streams.append(stream := await connected(port, tls=tls))
            stream[1].write(sent)
            assert await rest(stream) == b""


async def test_half_a_handshake_is_not_waited_for(streams: list[Stream]) -> None:
    async with serving(SHORT, tls=True) as (port, _):
        streams.append(stream := await connected(port))
        stream[1].write(b"\x16\x03\x01")
        await rest(stream)


async def test_half_a_second_request_is_waited_for_no_longer_than_an_idle_connection(
    streams: list[Stream],
) -> None:
    async with serving(Bounds(), idle=0.1) as (port, _):
        streams.append(stream := await connected(port))
        assert await is_served(stream)
        stream[1].write(b"GET / HT")
        assert await rest(stream) == b""


async def test_a_response_may_take_longer_than_its_request(streams: list[Stream]) -> None:
    async with serving(Bounds(head=1.0, body=0.1)) as (port, may):
        streams.append(long := await connected(port))
        long[1].write(ASK)  # at once: this one has no more time for its head than the other
        streams.append(silent := await connected(port))
        assert await rest(silent) == b""
        may.set()
        assert (await asyncio.wait_for(long[0].readuntil(b"late"), PATIENCE)).startswith(b"HTTP/1.1 200")


async def test_no_more_connections_are_held_than_allowed_in_all_and_for_each_address(
    streams: list[Stream],
) -> None:
    async with serving(Bounds(connections=4, share=0.5)) as (port, _):
        served = []
        for source in ("127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.3"):
            streams.append(await connected(port, source))
            served.append(await is_served(streams[-1]))
        assert served == [True, True, False, True, True, False]
        streams[0][1].write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nno HTTP")
        streams[0][1].transport.abort()
        while not await is_served(again := await connected(port)):
            again[1].transport.abort()
        streams.append(again)


async def test_peers_that_have_shown_who_they_are_do_not_count_for_their_address(
    streams: list[Stream],
) -> None:
    door = Door(socket.create_server(("127.0.0.1", 0)), Bounds(connections=4, share=0.25))
    made: list[asyncio.BaseTransport] = []

    class Trusted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)
            door.note_request(transport)
            door.trust(transport)
            door.trust(transport)

    async with await asyncio.get_running_loop().create_server(Trusted, sock=door):
        for _ in range(4):
            streams.append(await connected(door.getsockname()[1]))
            await until(lambda: len(made) == len(streams))
        streams.append(refused := await connected(door.getsockname()[1]))
        assert await rest(refused) == b""
        made[0].close()
        await rest(streams[0])
        streams.append(await connected(door.getsockname()[1]))
        await until(lambda: len(made) == 5)
        for transport in made:
            transport.close()


@pytest.mark.parametrize(
    ("files", "all_", "each"), [(1024, 768, 192), (1_048_576, 16_384, 4_096), (float("inf"), 16_384, 4_096)]
)
def test_a_quarter_of_the_file_descriptors_is_left_to_others(files: float, all_: int, each: int) -> None:
    bounds = Bounds().within(files)
    assert (bounds.connections, bounds.of_one_address) == (all_, each)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-con\xa8inue\r\n\r\n", 417),
        (b"GET / HTTX/9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
    ],
    ids=["chunks", "expectation", "line", "TLS"],
)
async def test_what_is_no_http_is_refused_without_a_line_in_the_log(
    streams: list[Stream], sent: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Bounds()) as (port, _):
        streams.append(stream := await connected(port))
        stream[1].write(sent)
        line = await asyncio.wait_for(stream[0].readline(), PATIENCE)
        assert int(line.split()[1]) == status
    assert [record for record in caplog.records if record.name.startswith("elasticjob")] == []


@pytest.fixture
def few_files() -> Iterator[None]:
    """A low soft limit below a high hard one, as containers of containerd 2 have (1024 and 524288)."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
async def test_a_soft_limit_on_file_descriptors_is_raised_to_what_a_server_needs() -> None:
    async with serving(Bounds(connections=600)):
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 800
    async with serving(Bounds(connections=60)):
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 800
