"""Connections whose requests are plain: served in a fraction of the time that a general server needs.

1. A request is plain if it is a POST whose head has come whole and has none but the usual headers, each once;
its body may still be on its way. `Plain.read` decides whether its head is one that it wants.
2. Any other request, and all that follow on its connection, go to the general server with every byte that is
not answered: what is unusual, wrong or slow is its business.
3. One request of a connection is served at a time; what comes meanwhile waits.
4. A connection is closed after `idle` seconds without a request.
"""

from __future__ import annotations

import asyncio
import socket
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from elasticjob.kube.http.serving import IDLE

LARGEST: Final = 256 * 1024
"""Bytes of a request that is plain."""
HEADS: Final = 4096
"""Heads that are remembered: clients send the same ones again and again."""
USUAL: Final = frozenset(
    {"host", "content-type", "content-length", "accept", "accept-encoding", "authorization", "user-agent"}
)

Wanted = TypeVar("Wanted")


class Head(NamedTuple):
    """The head of a plain request; the names of its headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    length: int


def plain_head(data: bytes) -> Head | None:
    """Return the head in `data`, without the empty line at its end; None if it is not plain."""
    if not data.isascii() or not data.startswith(b"POST /"):
        return None
    first, *lines = data.decode().split("\r\n")
    path, _, version = first.removeprefix("POST ").partition(" ")
    if version != "HTTP/1.1" or not path.isprintable():
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        name = name.lower()
        if not colon or name in headers or name not in USUAL or not value.isprintable():
            return None
        headers[name] = value
    length = headers.get("content-length", "")
    if not (length.isdecimal() and len(length) < 8 and "host" in headers):
        return None
    return Head(path, headers, int(length))


class Plain(Generic[Wanted]):
    """What the connections of one server share; a subclass serves them. `make` is the general server."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        *,
        body: float,
        arrived: Callable[[Line], None],
        idle: float = IDLE,
    ) -> None:
        """`body` is how many seconds a body may take to arrive; `arrived` hears of the first request."""
        self.make, self.body, self.arrived, self.idle = make, body, arrived, idle
        self.lines: set[Line] = set()
        self._known: dict[bytes, tuple[Wanted, int]] = {}

    @abstractmethod
    def read(self, head: Head) -> Wanted | None:
        """Return what to do with requests of this head; None: it is left to the general server."""

    @abstractmethod
    def serve(self, line: Line, wanted: Wanted, body: bytes) -> bool:
        """Serve a request: call `line.answer` now or later; False leaves it to the general server."""

    @abstractmethod
    def lost(self, line: Line) -> None:
        """The connection has closed, perhaps before its answer."""

    def __call__(self) -> Line:
        """Return the protocol of a new connection."""
        return Line(self)

    def match(self, head: bytes) -> tuple[Wanted, int] | None:
        """Return what to do with requests of this head, and the length of their body."""
        if (found := self._known.get(head)) is not None:
            return found
        read = plain_head(head)
        wanted = self.read(read) if read else None
        if read is None or wanted is None:
            return None
        if len(self._known) >= HEADS:
            self._known.clear()
        self._known[head] = wanted, read.length
        return self._known[head]

    def close(self) -> None:
        """Close all connections."""
        for line in tuple(self.lines):
            line.transport.abort()


class Line(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, server: Plain[Wanted]) -> None:
        self._server: Plain[Wanted] = server
        self._rest = b""
        self._busy = self._closed = False
        self._heard: float | None = None
        self._late: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if made := transport.get_extra_info("socket"):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._server.lines.add(self)
        self._idle = self._loop.call_later(self._server.idle, self._close_if_idle)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if not self._busy:
            self._next()
        elif len(self._rest) > LARGEST:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._forget()
        self._server.lost(self)

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def answer(self, status: bytes, mime: str, body: bytes) -> None:
        """Respond to the request that is served, such as by b"200 OK"; without a body for an empty `mime`."""
        if self._closed:
            return
        if mime:
            head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
            self.transport.write(head % (status, mime.encode(), len(body)) + body)
        else:
            self.transport.write(b"HTTP/1.1 %b\r\n\r\n" % status)
        self._busy, self._heard = False, self._loop.time()
        if self._rest:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not (self._busy or self._closed) and self._rest:
            self.transport.resume_reading()
            self._next()

    def _next(self) -> None:
        """Serve the next request if it is whole."""
        end = self._rest.find(b"\r\n\r\n")
        found = self._server.match(self._rest[:end]) if end > 0 else None
        if found is None or found[1] > LARGEST:
            self._hand_over()
            return
        wanted, length = found
        whole = end + 4 + length
        if len(self._rest) < whole:
            self._late = self._late or self._loop.call_later(self._server.body, self.transport.abort)
            return
        if self._late:
            self._late.cancel()
            self._late = None
        if self._heard is None:
            self._heard = self._loop.time()
            self._server.arrived(self)
        self._busy, request, self._rest = True, self._rest[:whole], self._rest[whole:]
        if not self._server.serve(self, wanted, request[end + 4 :]):
            self._rest = request + self._rest
            self._hand_over()

    def _hand_over(self) -> None:
        self._forget()
        handler, rest, self._rest = self._server.make(), self._rest, b""
        self.transport.resume_reading()
        self.transport.set_protocol(handler)
        handler.connection_made(self.transport)
        handler.data_received(rest)

    def _forget(self) -> None:
        self._server.lines.discard(self)
        self._idle.cancel()
        if self._late:
            self._late.cancel()

    def _close_if_idle(self) -> None:
        waits = self._busy or self._heard is None  # the door bounds the time until the first request
        idle = self._server.idle
        left = idle if waits else (self._heard or 0.0) + idle - self._loop.time()
        if left > 0:
            self._idle = self._loop.call_later(left, self._close_if_idle)
        else:
            self.transport.close()
