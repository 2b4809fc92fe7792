"""One listener of the service proxy, when it closes."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator

import pytest

from elasticjob.devcluster.proxy import Listener

Address = tuple[str, int]


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Address]:
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()


@pytest.fixture
def address() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: Address = free.getsockname()
    return found


async def accepted(address: Address) -> socket.socket:
    """Return a client that was accepted a moment ago, and has no transport yet."""
    client = socket.create_connection(address)
    client.setblocking(False)
    await asyncio.sleep(0)  # the loop sees it
    await asyncio.sleep(0)  # and accepts it, in the pass before this one
    return client


async def hear(client: socket.socket) -> bytes:
    async with asyncio.timeout(60):
        return await asyncio.get_running_loop().sock_recv(client, 10)


async def test_a_client_that_is_accepted_while_it_closes_is_served(
    endpoint: Address, address: Address
) -> None:
    listener = Listener([endpoint])
    await listener.open(address)
    with await accepted(address) as client:
        listener.close()
        assert await hear(client) == b"hello"
    gc.collect()  # an unclosed transport would fail the test
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_a_client_that_is_accepted_while_all_are_cut_is_cut(
    endpoint: Address, address: Address
) -> None:
    listener = Listener([endpoint])
    await listener.open(address)
    with await accepted(address) as client:
        listener.cut()
        with pytest.raises(ConnectionResetError):
            await hear(client)
    gc.collect()
