"""Which requests are plain, and what becomes of the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from elasticjob.kube.http.plain import LARGEST, Head, Line, Plain, plain_head
from tests.kit.kube.stub import until

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer y\r\nContent-Length: 2"


def post(body: bytes, path: str = "/echo") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class General(asyncio.Protocol):
    """The general server: says what it got."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"general: " + data)


class Echo(Plain[str]):
    """Answers with the body: at once at /echo, when it may at /later; leaves a body "no" to the other."""

    def __init__(self, *, body: float = 60.0, idle: float = 60.0) -> None:
        self.arrivals: list[Line] = []
        super().__init__(General, body=body, arrived=self.arrivals.append, idle=idle)
        self.waiting: list[tuple[Line, bytes]] = []
        self.gone: list[Line] = []

    def read(self, head: Head) -> str | None:
        return head.path if head.path in ("/echo", "/later") else None

    def serve(self, line: Line, wanted: str, body: bytes) -> bool:
        if wanted == "/later":
            self.waiting.append((line, body))
        elif body != b"no":
            line.answer(b"200 OK", "text/plain", body)
        return body != b"no"

    def lost(self, line: Line) -> None:
        self.gone.append(line)


@asynccontextmanager
async def connected(
    echo: Echo, first: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which `first` lies ready when the server accepts it."""
    server = await asyncio.get_running_loop().create_server(echo, "127.0.0.1", 0)
    async with server:
        ours = socket.create_connection(server.sockets[0].getsockname()[:2])
        ours.sendall(first)
        reader, writer = await asyncio.open_connection(sock=ours)
        yield reader, writer
        writer.transport.abort()


def answered(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_plain_heads_are_read() -> None:
    headers = {"host": "x", "authorization": "Bearer y", "content-length": "2"}
    assert plain_head(HEAD) == Head("/echo", headers, 2)


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"POST", b"GET"),
        HEAD.replace(b"1.1", b"1.0"),
        HEAD.replace(b"Length: 2", b"Length: 2 "),
        HEAD.replace(b"Length: 2", b"Length: -2"),
        HEAD.replace(b"Length: 2", b"Length: 99999999"),
        HEAD.replace(b"Content-Length: 2", b"Accept: x"),
        HEAD.replace(b"Host: x\r\n", b""),
        HEAD + b"\r\nContent-Length: 2",
        HEAD + b"\r\nTransfer-Encoding: chunked",
        HEAD + b"\r\nConnection: close",
        HEAD + b"\r\nExpect: 100-continue",
        HEAD + b"\r\n folded: x",
        HEAD + b"\r\nAccept:x",
        HEAD + b"\r\nAccept: \x00",
        HEAD + b"\r\nAccept: \xff",
        HEAD + b"\nAccept: x",
    ],
)
def test_anything_unusual_is_not_plain(head: bytes) -> None:
    assert plain_head(head) is None


async def test_requests_are_answered_one_after_another_however_they_arrive() -> None:
    echo = Echo()
    async with connected(echo) as (reader, writer):
        first, *rest = post(b"one"), post(b"two", "/later"), post(b"three")
        writer.write(first + b"".join(rest)[:-4])
        assert await reader.readexactly(len(answered(b"one"))) == answered(b"one")
        await until(lambda: bool(echo.waiting))
        writer.write(rest[-1][-4:])
        line, body = echo.waiting.pop()
        line.answer(b"200 OK", "text/plain", body)
        both = answered(b"two") + answered(b"three")
        assert await reader.readexactly(len(both)) == both
        assert echo.arrivals == [line]


@pytest.mark.parametrize(
    "sent",
    [post(b"no"), post(b"x", "/elsewhere"), b"GET / HTTP/1.1\r\n\r\n", b"PO", post(b"x" * (LARGEST + 1))],
    ids=["unwilling", "elsewhere", "verb", "part", "large"],
)
async def test_what_is_not_plain_goes_to_the_general_server_whole(sent: bytes) -> None:
    async with connected(echo := Echo()) as (reader, writer):
        writer.write(post(b"plain") + sent)
        await reader.readexactly(len(answered(b"plain")))
        assert await reader.readexactly(11) == b"general: " + sent[:2]
        assert not echo.lines


async def test_half_a_body_is_not_waited_for() -> None:
    async with connected(Echo(body=0.05)) as (reader, writer):
        writer.write(post(b"whole")[:-1])
        assert await reader.read() == b""


async def test_an_idle_connection_is_closed_and_one_that_waits_is_not() -> None:
    echo = Echo(idle=0.05)
    async with connected(echo, post(b"x", "/later")) as (reader, _):
        await until(lambda: echo.waiting)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        line, body = echo.waiting.pop()
        line.answer(b"200 OK", "text/plain", body)
        assert await reader.read() == answered(b"x")
        assert echo.gone == [line]


async def test_a_closed_connection_takes_no_answer() -> None:
    async with connected(echo := Echo()) as (_, writer):
        writer.write(post(b"x", "/later"))
        await until(lambda: bool(echo.waiting))
        writer.transport.abort()
        await until(lambda: bool(echo.gone))
        echo.waiting[0][0].answer(b"200 OK", "text/plain", b"x")
        assert not echo.lines
