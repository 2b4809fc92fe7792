"""What the plainest of the peers hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from benchmarks.clients.load import Plain
from benchmarks.clients.peers.server import CHANGED, DONE, Peer

ADDED = b'{"type":"ADDED","object":{"kind":"Pod"}}\n'
MODIFIED = CHANGED + b',"object":{"kind":"Pod"}}\n'
BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"annotations":{%s}}}}\n' % DONE


@asynccontextmanager
async def saying(body: bytes, piece: int, *, ends: bool = True) -> AsyncIterator[Peer]:
    """An API server that says something to all who ask, in pieces."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(body), piece):
            await response.write(body[start : start + piece])
        if not ends:
            await asyncio.Event().wait()
        return response

    async with answering(respond) as peer:
        yield peer


@asynccontextmanager
async def answering(respond: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[Peer]:
    app = web.Application()
    app.router.add_get("/{path:.*}", respond)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield Peer(Plain(session, str(server.make_url("")).rstrip("/")))


@pytest.mark.parametrize("piece", [1, 7, 64, 10_000])
async def test_changes_are_counted_however_the_stream_is_cut(piece: int) -> None:
    seen: list[str] = []
    async with saying(ADDED * 3 + BOOKMARK + MODIFIED * 5, piece) as peer:
        await peer.follow(lambda name, version: seen.append(name))
    assert len(seen) == 5


@pytest.mark.parametrize("piece", [1, 7, 64, 10_000])
async def test_the_initial_events_end_with_their_bookmark(piece: int) -> None:
    async with saying(ADDED * 3 + BOOKMARK, piece, ends=False) as peer, asyncio.timeout(60):
        assert await peer.fill(3) is None


async def test_pages_are_asked_for_to_the_last() -> None:
    pages = {"": "abc", "abc": "def", "def": ""}
    asked: list[str] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.get("continue", ""))
        token = pages[asked[-1]]
        more = {"continue": token} if token else {}
        return web.Response(
            body=msgspec.json.encode({"metadata": {"resourceVersion": "5", **more}, "items": []})
        )

    async with answering(respond) as peer:
        await peer.pages("500")
    assert asked == list(pages)
