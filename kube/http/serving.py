"""aiohttp's servers, listening at one port for IPv4 and IPv6."""

from __future__ import annotations

import asyncio
import socket
import ssl

from aiohttp import web

from elasticjob.kube.http.sockets import refuse

BACKLOG = 4096


class _Runner(web.BaseRunner):
    """Its `cleanup` lets requests under way end in `shutdown_timeout`, then closes all connections."""

    _listening: socket.socket | None = None

    @property
    def transports(self) -> list[asyncio.Transport]:
        """Those of all connections that are made."""
        found = [connection.transport for connection in self.server.connections] if self.server else []
        return [transport for transport in found if transport]

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
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
        self._listening = made
        await web.SockSite(self, made, ssl_context=tls, backlog=BACKLOG).start()
        found: int = made.getsockname()[1]
        return found

    async def cleanup(self) -> None:
        if self._listening:
            refuse([self._listening])
            await asyncio.sleep(0)
        await super().cleanup()


class Runner(_Runner, web.AppRunner):
    """Serves an application."""


class ServerRunner(_Runner, web.ServerRunner):
    """Serves by a server of one's own, below applications and routes."""
