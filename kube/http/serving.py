"""aiohttp's servers, listening at one port for IPv4 and IPv6, within bounds of number and time (door.py)."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, Final

from aiohttp import web
from aiohttp.http import HttpProcessingError

from elasticjob.kube.http.door import Bounds, Door
from elasticjob.kube.http.sockets import refuse

BACKLOG = 4096
IDLE: Final = 75.0
"""Seconds that a connection without a request stays open, longer than Prometheus's usual minute. aiohttp
counts from the last response, so that this bounds the headers of a connection's later requests too."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a log line is about an error of this program: bytes that are no HTTP are the client's."""
    return not (
        record.exc_info and isinstance(record.exc_info[1], (HttpProcessingError, web.RequestPayloadError))
    )


log = logging.getLogger(__name__)
log.addFilter(_is_ours)

DEFAULTS: Final[dict[str, Any]] = {
    "access_log": None,
    "logger": log,
    "keepalive_timeout": IDLE,
    "auto_decompress": False,  # no client of ours compresses, and a small body may hold a large one
}


class _Runner(web.BaseRunner):
    """Its `cleanup` lets requests under way end in `shutdown_timeout`, then closes all connections."""

    _listening: Door | None = None

    @property
    def transports(self) -> list[asyncio.Transport]:
        """Those of all connections that are made."""
        found = [connection.transport for connection in self.server.connections] if self.server else []
        return [transport for transport in found if transport]

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, bounds: Bounds | None = None
    ) -> int:
        """Serve at `host`, or at all addresses of this machine for ""; return the port, a free one for 0.

        Raises OSError with a sentence if the address cannot be had.
        """
        everywhere = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
        try:
            made = socket.create_server((host, port), family=family, dualstack_ipv6=everywhere)
        except OSError as error:
            why = (error.strerror or str(error)).partition(" (while")[0].lower()  # what Python adds
            raise OSError(error.errno, f"cannot listen at {host}:{port}: {why}") from None
        bounds = bounds or Bounds()
        bounds = bounds.within(_files(bounds.files))
        door = self._listening = Door(made, bounds)
        if self.server:
            self.server.request_handler = _in_time(self.server.request_handler, door, bounds.body)
        await web.SockSite(self, door, ssl_context=tls, backlog=BACKLOG).start()
        found: int = door.getsockname()[1]
        return found

    def trust(self, transport: asyncio.BaseTransport) -> None:
        """Note that a request has come by a connection whose peer has shown who it is."""
        if self._listening:
            self._listening.note_request(transport)
            self._listening.trust(transport)

    async def cleanup(self, first: float = 0.0) -> None:
        """Close, after at most `first` seconds for the first requests of connections that are there."""
        if self._listening:
            refuse([self._listening])
            await asyncio.sleep(0)
            for site in self.sites:
                await site.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(first):
                    await self._listening.all_in_use()
        await super().cleanup()


class Runner(_Runner, web.AppRunner):
    """Serves an application."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, **(DEFAULTS | options))


class ServerRunner(_Runner, web.ServerRunner):
    """Serves by a server of one's own, below applications and routes; it takes the DEFAULTS too."""


def _files(wanted: int) -> float:
    """Return how many file descriptors this process may have, after raising the soft limit to `wanted`.

    Containers often start with a soft limit of 1024, for programs that use select(), below a far higher hard
    limit. Processes that are started from here inherit the raised limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return inf
    if soft >= wanted:
        return soft
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (ValueError, OSError):  # macOS has a limit of its own below the hard one
        return soft
    return raised


def _in_time(handle: Handler, door: Door, body: float) -> Handler:
    """Return `handle` with a limit in seconds on the arrival of a request's body, not on its response."""

    async def handled(request: web.BaseRequest) -> web.StreamResponse:
        if request.transport:
            door.note_request(request.transport)
        if not request.headers.get("Expect", "").isascii():  # aiohttp puts it into its response's text
            return web.Response(status=417, text="Expect: 100-continue is the only expectation\n")
        late = asyncio.get_running_loop().call_later(body, _give_up, request)
        try:
            return await handle(request)
        except web.RequestPayloadError as error:
            return web.Response(status=400, text=f"the body cannot be read: {error}\n")
        finally:
            late.cancel()

    return handled


def _give_up(request: web.BaseRequest) -> None:
    """Close the connection if the request is not whole yet."""
    if request.transport and not request.content.is_eof():
        request.transport.abort()
