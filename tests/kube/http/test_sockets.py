"""Nothing stays open where its user has closed, whatever the peer does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import psutil
import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.config import Config
from elasticjob.kube.objects.views import POD
from elasticjob.kube.webhook.certs.certificates import issue, new_authority, server_context

AUTHORITY = new_authority("test", datetime.now(UTC))


@asynccontextmanager
async def mute(context: ssl.SSLContext | None, asked: asyncio.Event) -> AsyncIterator[int]:
    """The port of a server that takes a request, and says nothing ever after, not even farewell."""
    over = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined] # a stream's transport can
        asked.set()
        await over.wait()
        writer.transport.abort()

    async with await asyncio.start_server(hold, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
        over.set()


def open_to(port: int) -> int:
    """How many connections this process has to a port of its own."""
    found = psutil.Process().net_connections("tcp")
    return sum(bool(one.raddr) and one.raddr.port == port for one in found)


@pytest.mark.parametrize("tls", [True, False])
async def test_a_request_that_was_given_up_leaves_no_socket_behind(tls: bool) -> None:
    """Closed amid a request, TLS waits for the peer's farewell: the client does not."""
    serving = server_context(issue(AUTHORITY, ["127.0.0.1"], datetime.now(UTC))) if tls else None
    trusting = ssl.create_default_context(cadata=AUTHORITY.certificate.decode()) if tls else None
    asked = asyncio.Event()
    async with mute(serving, asked) as port:
        async with Client(Config(f"{'https' if tls else 'http'}://127.0.0.1:{port}", ssl=trusting)) as client:
            asking = asyncio.create_task(client.list(POD))
            await asyncio.wait_for(asked.wait(), 60)
            assert open_to(port) == 1
            asking.cancel()
            await asyncio.wait({asking})
        assert open_to(port) == 0
