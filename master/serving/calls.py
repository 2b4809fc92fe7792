"""Calls over HTTP: plain ones are served here (see `kube/http/plain.py`), all others by aiohttp's server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from elasticjob.api.rpc.message import PREFIX, Request
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.kube.http.plain import Head, Line, Plain
from elasticjob.kube.http.serving import DEFAULTS
from elasticjob.master.serving import wire
from elasticjob.master.serving.polls import Poll, Tell
from elasticjob.master.state.errors import RequestError


class Desk(Protocol):
    """The master, as the server of its connections sees it."""

    def now(self) -> datetime: ...

    def take(self, request: Request[Any], tell: Tell) -> Poll | None: ...

    def drop(self, poll: Poll | None) -> None: ...

    def heard_on(self, line: object, question: Request[Any]) -> None: ...

    def cut(self, question: Request[Any], asked: datetime) -> None: ...

    def line_closed(self, line: object) -> None: ...

    def encoded(self, question: Request[Any], reply: Any, mime: str) -> bytes: ...


class Call(NamedTuple):
    """What the head of a plain request asks for: the decoder of its body, the type of the response."""

    decode: Callable[[bytes], Request[Any]]
    accepted: str


class Calls(Plain[Call]):
    """Calls of verbs by connections that send nothing unusual: nearly all."""

    def __init__(self, desk: Desk, token: str, **options: Any) -> None:
        super().__init__(**options)
        self._desk, self._token = desk, token
        self._waiting: dict[Line, tuple[Request[Any], datetime, Poll]] = {}

    def read(self, head: Head) -> Call | None:
        try:
            if not head.path.startswith(PREFIX):
                return None
            name = wire.verb("POST", head.path)
            wire.authorize(head.headers.get("authorization", ""), self._token)
        except wire.Rejected:
            return None
        mime = wire.media_type(head.headers.get("content-type", ""))
        return Call(wire.decoder(name, mime), wire.media_type(head.headers.get("accept", ""), default=mime))

    def serve(self, line: Line, wanted: Call, body: bytes) -> bool:
        try:
            question = wanted.decode(body)
        except UNREADABLE:
            return False
        asked = self._desk.now()
        self._desk.heard_on(line.transport, question)
        poll = self._desk.take(question, partial(self._respond, line, wanted, question))
        if poll:
            self._waiting[line] = question, asked, poll
        return True

    def lost(self, line: Line) -> None:
        if waiting := self._waiting.pop(line, None):
            question, asked, poll = waiting
            self._desk.drop(poll)
            self._desk.cut(question, asked)
        self._desk.line_closed(line.transport)

    def _respond(self, line: Line, call: Call, question: Request[Any], reply: Any) -> None:
        self._waiting.pop(line, None)
        if reply is None:
            line.answer(b"204 No Content", "", b"")
        elif isinstance(reply, RequestError):
            problem = reply.problem()
            body, mime = wire.problem_body(problem)
            line.answer(b"%d Problem" % problem.status, mime, body)
        elif not isinstance(reply, asyncio.CancelledError):
            line.answer(b"200 OK", call.accepted, self._desk.encoded(question, reply, call.accepted))


class Server(web.Server):
    """aiohttp's low-level server behind the plain one, with a callback when a connection closes."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        closed: Callable[[object], None],
    ) -> None:
        super().__init__(handler, handler_cancellation=True, **DEFAULTS)
        self._closed = closed
        self._transports: dict[object, object] = {}
        self.plain: Plain[Any] | None = None

    def __call__(self) -> Any:
        return self.plain() if self.plain else super().__call__()

    def general(self) -> RequestHandler:
        """Return aiohttp's protocol of a connection."""
        return super().__call__()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        self._transports[handler] = transport
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._closed(self._transports.pop(handler, None))

    async def shutdown(self, timeout: float | None = None) -> None:
        await super().shutdown(timeout)
        if self.plain:
            self.plain.close()
