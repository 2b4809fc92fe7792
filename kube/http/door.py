"""A listening socket that bounds the connections behind it, before TLS, HTTP and tokens.

1. No more than so many connections are open, and one address holds no more than its share of them.
2. A connection beyond that is closed as soon as it is accepted.
3. A connection whose peer has shown who it is counts no more for its address: thousands of them may stand
behind one that is translated.
4. A connection whose first request does not come in time, TLS handshake included, is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

log = logging.getLogger(__name__)

SAY_AGAIN: Final = 60.0
"""Seconds between two log lines about connections that are refused."""


@dataclass(frozen=True)
class Bounds:
    """How many connections a server holds, and how many seconds their requests may take to arrive.

    `share` is the part of them that one address may hold; `head` is for the first request's headers, counted
    from the connection's beginning, `body` for the body of each request, counted from the end of its headers.
    """

    connections: int = 16_384
    share: float = 0.25
    head: float = 10.0
    body: float = 30.0

    @property
    def files(self) -> int:
        """The number of file descriptors that a process needs, a quarter of them for everything else."""
        return ceil(self.connections / 0.75)

    def within(self, files: float) -> Bounds:
        """Leave a quarter of the process's file descriptors to everything else."""
        return replace(self, connections=int(min(self.connections, 0.75 * files)))

    @property
    def of_one_address(self) -> int:
        """The number of connections that one address may hold."""
        return max(1, int(self.connections * self.share))


class Door(socket.socket):
    """Accepts like the listening socket that it takes over, within `bounds`."""

    def __init__(self, listening: socket.socket, bounds: Bounds) -> None:
        super().__init__(listening.family, listening.type, listening.proto, listening.detach())
        self.setblocking(False)
        self._bounds = bounds
        self._open: dict[int, _Connection] = {}
        self._held: Counter[str] = Counter()
        self._said = float("-inf")
        self._news = asyncio.Event()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection and its peer's address, as any socket.

        Raises ConnectionAbortedError for one that was closed at once: asyncio then lets the loop go on before
        it accepts the next.
        """
        made, address = super().accept()
        peer = address[0]
        if len(self._open) >= self._bounds.connections or self._held[peer] >= self._bounds.of_one_address:
            made.close()
            self._say(peer)
            raise ConnectionAbortedError(f"too many connections, {self._held[peer]} of them from {peer}")
        connection = _Connection(made, peer, self._bounds.head, self._forget)
        self._open[connection.fileno()] = connection
        self._held[peer] += 1
        return connection, address

    def note_request(self, transport: asyncio.BaseTransport) -> None:
        """Note that a request has come by this connection."""
        if connection := self._open.get(transport.get_extra_info("socket").fileno()):
            connection.late.cancel()
            self._news.set()

    async def all_in_use(self) -> None:
        """Return once the first request of each open connection has come."""
        while any(not connection.late.cancelled() for connection in self._open.values()):
            self._news.clear()
            await self._news.wait()

    def trust(self, transport: asyncio.BaseTransport) -> None:
        """Note that the peer of this connection has shown who it is."""
        connection = self._open.get(transport.get_extra_info("socket").fileno())
        if connection and not connection.trusted:
            self._let_go(connection)
            connection.trusted = True

    def _forget(self, connection: _Connection) -> None:
        del self._open[connection.fileno()]
        self._news.set()
        if not connection.trusted:
            self._let_go(connection)

    def _let_go(self, connection: _Connection) -> None:
        """Take the connection from the share of its address."""
        self._held[connection.peer] -= 1
        if not self._held[connection.peer]:
            del self._held[connection.peer]

    def _say(self, peer: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._said < SAY_AGAIN:
            return
        self._said = now
        log.warning(
            "connections are closed at once: %d of %d are open, %d of %d from %s",
            len(self._open),
            self._bounds.connections,
            self._held[peer],
            self._bounds.of_one_address,
            peer,
        )


class _Connection(socket.socket):
    """An accepted connection; its peer sees the end of it unless `late` is cancelled in time."""

    def __init__(
        self, made: socket.socket, peer: str, head: float, forget: Callable[[_Connection], None]
    ) -> None:
        super().__init__(made.family, made.type, made.proto, made.detach())
        self.peer, self.trusted = peer, False
        self._forget = forget
        self.late = asyncio.get_running_loop().call_later(head, self._end)

    def close(self) -> None:
        if self.fileno() >= 0:
            self.late.cancel()
            self._forget(self)
        super().close()

    def _end(self) -> None:
        """Let the transport read the end of the stream: it closes the connection then."""
        try:
            self.shutdown(socket.SHUT_RDWR)
        except OSError:  # the peer has gone meanwhile
            log.debug("a connection from %s ended before its first request", self.peer)
