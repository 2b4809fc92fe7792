"""An HTTP server that closes all its connections when it stops.

aiohttp knows of a connection once it is made: one amid its handshake is left behind, and one under TLS that
is closed waits for its peer's farewell, for up to half a minute. A loop that ends before leaves both open.
So the sockets are known here from the moment in which they are accepted.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import ExitStack, suppress
from typing import Any
from weakref import WeakSet

from aiohttp import web

from elasticjob.kube.http.sockets import let_go, refuse

FAREWELL = 1.0
"""Seconds in which clients may take what was sent to them, and end their side."""
LOOK_EVERY = 0.01
BACKLOG = 4096
LACKING = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
"""How a machine says that it has no addresses of a family."""


class _Runner(web.BaseRunner):
    """Serves where it is told to `listen`; once cleaned up, none of its sockets is open."""

    def __init__(self, served: Any, **options: Any) -> None:
        super().__init__(served, **options)  # type: ignore[call-arg] # as the other parent's
        self._ears: list[socket.socket] = []
        self._accepted: WeakSet[socket.socket] = WeakSet()

    @property
    def transports(self) -> list[asyncio.Transport]:
        """Those of all connections that are made."""
        found = [connection.transport for connection in self.server.connections] if self.server else []
        return [transport for transport in found if transport]

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Accept connections at all addresses of a host that this machine has; "": at each that it has.

        Returns the port, which is a free one for 0. Raises OSError where one cannot be had, or there is none.
        """
        made = await self._listening(host, port)
        self._ears += made
        for listening in made:
            await web.SockSite(self, listening, ssl_context=tls, backlog=BACKLOG).start()
        found: int = made[0].getsockname()[1]
        return found

    async def cleanup(self) -> None:
        """Listen no more, let requests under way be answered in their time, and close all connections."""
        refuse(self._ears)
        await asyncio.sleep(0)
        await super().cleanup()
        for listening in self._ears:
            listening.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                while any(each.fileno() >= 0 for each in self._accepted):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(LOOK_EVERY)
        await let_go(self._accepted)

    async def _listening(self, host: str, port: int) -> list[socket.socket]:
        """Sockets at all addresses of `host`, at one port."""
        loop = asyncio.get_running_loop()
        flags = socket.AI_PASSIVE
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
        made: list[socket.socket] = []
        lacking = OSError(errno.EADDRNOTAVAIL, "this machine has no address to listen at")
        with ExitStack() as unwind:
            for family, _, protocol, _, (address, _, *scope) in dict.fromkeys(found):
                try:
                    listening = _Listening(self._accepted, family, protocol)
                    _bind(listening, (address, port, *scope))
                except OSError as error:
                    if error.errno not in LACKING:
                        raise
                    lacking = error  # a name may stand for both families where there is one
                    continue
                unwind.callback(listening.close)
                made.append(listening)
                port = port or listening.getsockname()[1]
            if not made:
                raise lacking
            unwind.pop_all()
        return made


class Runner(_Runner, web.AppRunner):
    """Serves an application."""


class ServerRunner(_Runner, web.ServerRunner):
    """Serves by a server of one's own, below applications and routes."""


class _Listening(socket.socket):
    """Notes which sockets it has accepted."""

    def __init__(self, accepted: WeakSet[socket.socket], family: int, protocol: int) -> None:
        super().__init__(family, socket.SOCK_STREAM, protocol)
        self._noted = accepted

    def accept(self) -> tuple[socket.socket, Any]:
        made, address = super().accept()
        self._noted.add(made)
        return made, address


def _bind(listening: socket.socket, address: Any) -> None:
    """Have it stand at an address. Raises OSError, and closes it, where that cannot be had."""
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listening.family == socket.AF_INET6:  # IPv4 has a socket of its own
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        why = f"cannot listen at {address[0]}:{address[1]}: {(error.strerror or str(error)).lower()}"
        raise OSError(error.errno, why) from None
