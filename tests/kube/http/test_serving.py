"""Where a server listens, and how it stops."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import psutil
import pytest
from aiohttp import web

from elasticjob.kube.http.serving import Runner
from elasticjob.kube.webhook.certs.certificates import issue, new_authority, server_context
from lab.waiting import PATIENCE
from tests.kit.kube.stub import until

AUTHORITY = new_authority("test", datetime.now(UTC))
TRUSTING = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def serving(
    *, tls: bool = True, patience: float = 60
) -> AsyncIterator[tuple[Runner, int, asyncio.Event, asyncio.Event]]:
    """A server that answers once it may, its port, whether it was asked, and what lets it answer."""
    asked, may = asyncio.Event(), asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await may.wait()
        return web.Response(text="x" * 100_000)

    app = web.Application()
    app.router.add_get("/", answer)
    runner = Runner(app, access_log=None, shutdown_timeout=patience)
    await runner.setup()
    context = server_context(issue(AUTHORITY, ["127.0.0.1"], datetime.now(UTC))) if tls else None
    yield runner, await runner.listen("127.0.0.1", 0, context), asked, may
    await runner.cleanup()


def open_at(port: int) -> int:
    """How many sockets this process has at a port of its own."""
    return sum(bool(one.laddr) and one.laddr.port == port for one in psutil.Process().net_connections("tcp"))


async def test_an_idle_connection_is_closed() -> None:
    async with serving(tls=False) as (runner, port, _, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: open_at(port) == 2)  # the one that listens, and the one that is accepted
        await runner.cleanup()
        assert open_at(port) == 0
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("tls", [True, False])
async def test_a_client_that_sends_more_than_anybody_reads_is_not_waited_for(tls: bool) -> None:
    async with serving(tls=tls, patience=0.01) as (runner, port, asked, _):
        trusting = TRUSTING if tls else None
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n" + bytes(10_000_000))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        await runner.cleanup()
        assert open_at(port) == 0
        writer.transport.abort()


async def test_what_was_asked_is_answered_whole() -> None:
    async with serving() as (runner, port, asked, may), aiohttp.ClientSession() as session:

        async def ask() -> str:
            async with session.get(f"https://127.0.0.1:{port}/", ssl=TRUSTING) as answer:
                return await answer.text()

        asking = asyncio.create_task(ask())
        await asyncio.wait_for(asked.wait(), PATIENCE)
        stopping = asyncio.create_task(runner.cleanup())
        may.set()
        await stopping
        assert await asking == "x" * 100_000


async def test_everywhere_is_one_port_at_addresses_of_both_families() -> None:
    runner = Runner(web.Application(), access_log=None)
    await runner.setup()
    port = await runner.listen("", 0)
    assert {address[1] for address in runner.addresses} == {port}
    for host in ("127.0.0.1", "::1") if socket.has_dualstack_ipv6() else ("127.0.0.1",):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await writer.wait_closed()
    await runner.cleanup()
    assert open_at(port) == 0


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        runner = Runner(web.Application(), access_log=None)
        await runner.setup()
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{port}: address already in use"):
            await runner.listen("127.0.0.1", port)
        await runner.cleanup()
