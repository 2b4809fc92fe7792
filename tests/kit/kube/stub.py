"""A server that misbehaves on demand: each request is answered by the next entry of a script."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec
from aiohttp import web

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config, Credentials, Static
from elasticjob.kube.clock import Clock, VirtualClock
from lab.waiting import PATIENCE
from tests.kit.kube.listening import Listening

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """One request that came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Stub(Listening):
    """`async with Stub(answer, …) as stub`; when the script is over, requests hang until the end."""

    script: deque[Answer] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)

    def then(self, *answers: Answer) -> None:
        self.script.extend(answers)

    def client(self, clock: Clock | None = None, credentials: Credentials | None = None) -> Client:
        return Client(
            Config(self.url, credentials=credentials or Static("Bearer t")), clock=clock or VirtualClock()
        )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        if self.script:
            return await self.script.popleft()(request)
        return await hang()(request)


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> Answer:
    """A response of JSON, or of plain text."""

    async def respond(_: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return web.Response(status=status, body=raw, headers=headers)

    return respond


def page(*items: Any, rv: int, token: str = "") -> Answer:
    return answer(200, {"metadata": {"resourceVersion": str(rv), "continue": token}, "items": list(items)})


def stream(*chunks: bytes, end: str = "hang") -> Answer:
    """A watch: chunks, then `close` in order, `cut` the connection, or `hang`."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        match end:
            case "cut":
                assert request.transport is not None
                request.transport.close()
            case "hang":
                await hang()(request)
        return response

    return respond


def hang() -> Answer:
    """Keep the connection open without a response."""

    async def respond(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    return respond


async def until(
    condition: Callable[[], object], clock: VirtualClock | None = None, longest: float = inf
) -> None:
    """Let the loop run until `condition`; a clock is moved to whatever it waits for next.

    What is not due within `longest` seconds is no pause, but the patience for something that will come.
    """
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)
            if clock and not condition() and (due := clock.next_due) is not None and due <= longest:
                await clock.advance(due)
