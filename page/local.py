"""The page on this machine: a server at a loopback address, for whoever has the URL with its token."""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from elasticjob.kube.http.door import Bounds
from elasticjob.kube.http.serving import Runner
from elasticjob.page.pages import HEADERS, Pages

log = logging.getLogger("elasticjob.page")

HOST: Final = "127.0.0.1"
BOUNDS: Final = Bounds(connections=128, share=1.0)
LARGEST: Final = 1024
"""Bytes of a request's body: none has any."""
TOKEN: Final = "token"
NO_TOKEN: Final = "open the URL that elasticjob dashboard printed: it has a token\n"
OTHER_HOST: Final = "this page answers at its own address alone\n"


class Gate:
    """Who may see the page: requests to this machine by its own name, with the token.

    A page of another site whose name was made to lead here sends its own name as Host, and is refused.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self.port = 0

    @property
    def _cookie(self) -> str:
        """The name of the cookie: cookies of a host are those of all its ports."""
        return f"elasticjob-{self.port}"

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request that may not pass."""
        if request.headers.get("Host", "").lower() not in self._hosts:
            return web.Response(status=421, text=OTHER_HOST, headers=HEADERS)
        if given := request.query.get(TOKEN):
            return self._welcome() if request.path == "/" and self._is_right(given) else self._stop()
        sent = request.cookies.get(self._cookie) or request.headers.get("Authorization", "").removeprefix(
            "Bearer "
        )
        return None if self._is_right(sent) else self._stop()

    @property
    def _hosts(self) -> tuple[str, ...]:
        names = (HOST, "localhost")
        bare = names if self.port == 80 else ()  # browsers leave that port out
        return (*(f"{name}:{self.port}" for name in names), *bare)

    def _is_right(self, sent: str) -> bool:
        return hmac.compare_digest(sent.encode(errors="surrogateescape"), self._token.encode())

    def _welcome(self) -> web.Response:
        """Keep the token in a cookie, and go on without it: addresses are remembered, and shown to others."""
        response = web.Response(status=303, headers={**HEADERS, "Location": "/"})
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict", path="/")
        return response

    @staticmethod
    def _stop() -> web.Response:
        return web.Response(status=401, text=NO_TOKEN, headers=HEADERS)


@asynccontextmanager
async def serving(pages: Pages, port: int = 0) -> AsyncIterator[str]:
    """Serve the page until exit; yields its URL, with the token."""
    token = secrets.token_urlsafe(32)
    gate = Gate(token)

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        if refused := gate.refusal(request):
            return refused
        try:
            answered: web.StreamResponse = await handler(request)
            return answered
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        except Exception:  # the last place before the socket
            log.exception("a request failed", extra={"path": request.path})
            return web.Response(status=500, text="the log says why\n", headers=HEADERS)

    app = web.Application(client_max_size=LARGEST, middlewares=[guarded])
    for path, handler in pages.routes.items():
        app.router.add_get(path, handler)
    runner = Runner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        gate.port = await runner.listen(HOST, port, bounds=BOUNDS)
        yield f"http://{HOST}:{gate.port}/?{TOKEN}={token}"
    finally:
        await runner.cleanup()
