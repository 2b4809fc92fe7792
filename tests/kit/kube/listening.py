"""A server on loopback while an `async with` lasts: doubles of the API server stand on it."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Self

from aiohttp import web


class Listening:
    """Every request comes to `_answer`; `url` is where, once it listens."""

    url: str = ""
    tls: ssl.SSLContext | None = None
    """How to serve HTTPS; without it, it is plain HTTP."""
    _runner: web.AppRunner

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self.url = f"http{'s' if self.tls else ''}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raise NotImplementedError
