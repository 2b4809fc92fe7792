"""Calls over HTTP: plain ones are served here (see `kube/http/plain.py`), all others by aiohttp's server.

Both read a call in one way, and tell the desk of a client that has gone in one way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from elasticjob.api.rpc.message import PREFIX, Problem, Request
from elasticjob.api.rpc.nodes import Watch
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.kube.http.plain import Head, Line, Plain
from elasticjob.kube.http.serving import DEFAULTS
from elasticjob.master.serving import wire
from elasticjob.master.serving.polls import Poll, Tell
from elasticjob.master.state.errors import RequestError


class Desk(Protocol):
    """The master, as the server of its connections sees it."""

    async def ask(self, request: Request[Any]) -> Any: ...

    def take(self, request: Request[Any], tell: Tell) -> Poll | None: ...

    def hang_up(self, poll: Poll) -> None: ...


class Call(NamedTuple):
    """The head of a request: the verb, the decoder of its body, the type of the response."""

    name: str
    decode: Callable[[bytes], Request[Any]]
    accepted: str


def call_of(method: str, path: str, headers: Mapping[str, str], token: str) -> Call:
    """Return the call of a head, whose headers are found by names in lower case; Rejected if it is none."""
    name = wire.verb(method, path)
    wire.authorize(headers.get("authorization", ""), token)
    mime = wire.media_type(headers.get("content-type", ""))
    return Call(name, wire.decoder(name, mime), wire.media_type(headers.get("accept", ""), default=mime))


class Watching:
    """Which node watches by which connection."""

    def __init__(self, doubt: Callable[[Watch], None]) -> None:
        """`doubt` hears of a node whose connection closed between two Watches."""
        self._doubt = doubt
        self._watches: dict[object, Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def heard(self, line: object, question: Request[Any]) -> None:
        """Note the latest request of a connection."""
        if isinstance(question, Watch):
            self._watches[line] = question
        else:
            self._watches.pop(line, None)

    def forget(self, line: object) -> None:
        """Forget a connection."""
        if watch := self._watches.pop(line, None):
            self._doubt(watch)


class Calls(Plain[Call]):
    """Calls of verbs by connections that send nothing unusual: nearly all."""

    def __init__(
        self, desk: Desk, token: str, watching: Watching, encoder: wire.Encoder, **options: Any
    ) -> None:
        super().__init__(**options)
        self._desk, self._token, self._watching, self._encoder = desk, token, watching, encoder
        self._waiting: dict[Line, Poll] = {}

    def read(self, head: Head) -> Call | None:
        if not head.path.startswith(PREFIX):
            return None
        try:
            return call_of("POST", head.path, head.headers, self._token)
        except wire.BadRequest:
            return None

    def serve(self, line: Line, wanted: Call, body: bytes) -> bool:
        try:
            question = wanted.decode(body)
        except UNREADABLE:
            return False
        self._watching.heard(line.transport, question)
        if poll := self._desk.take(question, partial(self._respond, line, wanted, question)):
            self._waiting[line] = poll
        return True

    def lost(self, line: Line) -> None:
        if poll := self._waiting.pop(line, None):
            self._desk.hang_up(poll)
        self._watching.forget(line.transport)

    def _respond(self, line: Line, call: Call, question: Request[Any], reply: Any) -> None:
        self._waiting.pop(line, None)
        if reply is None:
            line.answer(b"204 No Content", "", b"")
        elif isinstance(reply, BaseException):
            _refuse(line, reply)
        else:
            line.answer(b"200 OK", call.accepted, self._encoder.answer(question, reply, call.accepted))


class Server(web.Server):
    """aiohttp's low-level server behind the plain one; it notes when a connection closes."""

    def __init__(
        self,
        desk: Desk,
        token: str,
        watching: Watching,
        page: Callable[[web.BaseRequest], web.StreamResponse],
    ) -> None:
        """`page` answers all that is no call."""
        super().__init__(self._serve, handler_cancellation=True, **DEFAULTS)
        self._desk, self._token, self._watching, self._page = desk, token, watching, page
        self._encoder = wire.Encoder()
        self._transports: dict[object, object] = {}
        self._plain: Calls | None = None

    def serve_plainly(self, body: float, arrived: Callable[[Line], None]) -> None:
        """Serve plain calls before aiohttp sees them; see `Plain` for the options."""
        options = {"make": self.general, "body": body, "arrived": arrived}
        self._plain = Calls(self._desk, self._token, self._watching, self._encoder, **options)

    def __call__(self) -> Any:
        return self._plain() if self._plain else super().__call__()

    def general(self) -> RequestHandler:
        """Return aiohttp's protocol of a connection."""
        return super().__call__()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        self._transports[handler] = transport
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._watching.forget(self._transports.pop(handler, None))

    async def shutdown(self, timeout: float | None = None) -> None:
        await super().shutdown(timeout)
        if self._plain:
            self._plain.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._call(request) if request.path.startswith(PREFIX) else self._page(request)

    async def _call(self, request: web.BaseRequest) -> web.Response:
        try:
            call = call_of(request.method, request.path, request.headers, self._token)
            question = wire.decode(call.name, call.decode, await _body(request))
            self._watching.heard(request.transport, question)
            reply = await self._desk.ask(question)
        except wire.BadRequest as error:
            return _problem(error.problem, error.headers)
        except RequestError as error:
            return _problem(error.problem())
        if reply is None:
            return web.Response(status=204)
        body = self._encoder.answer(question, reply, call.accepted)
        return web.Response(body=body, content_type=call.accepted)


def _refuse(line: Line, error: BaseException) -> None:
    """Respond with an error of a call; a client takes a plain 500 for a master that may come back."""
    if isinstance(error, RequestError):
        problem = error.problem()
        body, mime = wire.problem_body(problem)
        line.answer(b"%d Problem" % problem.status, mime, body)
    elif not isinstance(error, asyncio.CancelledError):
        line.answer(b"500 Internal Server Error", "text/plain", b"a defect of the master, see its log\n")


async def _body(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > wire.LIMIT:
        raise wire.too_large(request.content_length)
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise wire.too_large(None) from error


def _problem(problem: Problem, headers: Mapping[str, str] | None = None) -> web.Response:
    body, mime = wire.problem_body(problem)
    return web.Response(status=problem.status, body=body, content_type=mime, headers=headers)
