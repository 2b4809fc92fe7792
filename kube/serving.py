"""An HTTP server that leaves nothing open.

aiohttp knows of a connection once it is made: one amid its handshake is left behind, and one under TLS that
is closed waits for its peer's farewell, for up to half a minute. A loop that ends before leaves both open.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import web

from elasticjob.kube.sockets import let_go

FAREWELL = 1.0
"""Seconds in which clients may take what was sent to them, and end their side."""
LOOK_EVERY = 0.01


class Runner(web.AppRunner):
    """Serves an application; once it is cleaned up, none of its sockets is open."""

    __slots__ = ("_accepting", "_open")

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(app, **options)
        self._accepting: set[asyncio.Task[Any]] = set()
        self._open: set[Any] = set()
        """Sockets: under TLS a transport that was closed twice does not know its own any more."""

    @property
    def transports(self) -> list[asyncio.Transport]:
        """Those of all connections that are made."""
        server = super().server
        found = [connection.transport for connection in server.connections] if server else []
        return [transport for transport in found if transport]

    @property
    def server(self) -> Any:
        """What a site makes of each connection: asked in the task that accepts it."""
        server = super().server
        if server is None:
            return None

        def accept() -> web.RequestHandler:
            handler = server()
            if task := asyncio.current_task():
                self._accepting.add(task)
                task.add_done_callback(partial(self._accepted, handler))
            return handler

        return accept

    async def cleanup(self) -> None:
        """Listen no more, let requests under way be answered in their time, and close all connections."""
        for site in self.sites:
            await site.stop()
        await asyncio.sleep(0)  # what was accepted a moment ago is begun
        await self._break_off()
        made = [each for each in self._open if each.fileno() >= 0]
        await super().cleanup()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                while any(each.fileno() >= 0 for each in made):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(LOOK_EVERY)
        await let_go(made)

    def _accepted(self, handler: web.RequestHandler, task: asyncio.Task[Any]) -> None:
        self._accepting.discard(task)
        self._open = {each for each in self._open if each.fileno() >= 0}
        if handler.transport is not None and not handler.transport.is_closing():
            self._open.add(handler.transport.get_extra_info("socket"))

    async def _break_off(self) -> None:
        """Nobody has asked anything on a connection amid its handshake."""
        if pending := {*self._accepting}:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
