"""One listener of the service proxy, when it closes."""

from __future__ import annotations

import asyncio
import gc
import select
import socket
from collections.abc import AsyncIterator

import pytest

from elasticjob.devcluster.proxy import Listener
from lab.waiting import PATIENCE

Address = tuple[str, int]


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Address]:
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()


async def listening(endpoint: Address) -> tuple[Listener, socket.socket]:
    """Return a listener on a port of its own, and its socket."""
    listener = Listener([endpoint])
    await listener.open(("127.0.0.1", 0))
    (door,) = listener._server.sockets
    return listener, door


async def accepted(door: socket.socket) -> socket.socket:
    """Return a client that was accepted a moment ago, and has no transport yet."""
    client = socket.create_connection(door.getsockname())
    client.setblocking(False)
    select.select([door], [], [], PATIENCE)  # the kernel may tell the listener later than the client
    await asyncio.sleep(0)  # the loop sees it
    await asyncio.sleep(0)  # and accepts it, in the pass before this one
    return client


async def hear(client: socket.socket) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await asyncio.get_running_loop().sock_recv(client, 10)


async def test_a_client_that_is_accepted_while_it_closes_is_served(endpoint: Address) -> None:
    listener, door = await listening(endpoint)
    address = door.getsockname()
    with await accepted(door) as client:
        listener.close()
        assert await hear(client) == b"hello"
    gc.collect()  # an unclosed transport would fail the test
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_a_client_that_is_accepted_while_all_are_cut_is_cut(endpoint: Address) -> None:
    listener, door = await listening(endpoint)
    with await accepted(door) as client:
        listener.cut()
        with pytest.raises(ConnectionResetError):
            await hear(client)
    gc.collect()
