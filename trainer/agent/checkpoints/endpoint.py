"""Where an agent serves its node's memory to the other nodes of the job: blocks out, copies in."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from elasticjob.api.rpc.message import decode_as
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.memory import NoRoom, Writer
from elasticjob.trainer.checkpoint.part import START, Damaged, Save, size_of

CHUNK: Final = 1 << 20
WRITTEN: Final = "/v1/written"
LARGEST_MESSAGE: Final = 1 << 28  # a head tells of all tensors of a part


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a save is in storage; answered by whether the save is committed, 204: not known yet."""

    where: bytes
    keep: int
    step: int
    round: int
    part: int
    parts: int
    name: str
    size: int
    crc: int
    after: int
    head: bytes

    @property
    def save(self) -> Save:
        """The checkpoint of which this is a part."""
        return Save(self.step, self.round)


class Endpoint:
    """An HTTP server for the agents and workers of the job, who have its token."""

    def __init__(
        self, folder: Path, token: str, written: Callable[[Written], Awaitable[bool | None]]
    ) -> None:
        self._folder, self._token, self._written = folder, token, written
        app = web.Application(client_max_size=LARGEST_MESSAGE, middlewares=[self._authenticate])
        path = r"/v1/memory/{mark:[0-9a-f]{8}}/{step:\d{1,16}}/{round:\d{1,16}}/{part:\d{1,7}}"
        app.router.add_get(path, self._give)
        app.router.add_put(path, self._take)
        app.router.add_post(WRITTEN, self._hear)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def open(self, host: str) -> int:
        """Begin to serve; return the port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, 0).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        wanted = f"Bearer {self._token}"
        if self._token and not hmac.compare_digest(
            request.headers.get("Authorization", "").encode(), wanted.encode()
        ):
            raise web.HTTPUnauthorized(text="the job's token is missing or wrong")
        return await handler(request)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        """Send the bytes of a block that the request's range asks for."""
        mark, save, number = parse_path(request)
        for held in await asyncio.to_thread(memory.blocks_of, self._folder, mark):
            if held.head.save == save and held.head.part == number:
                with suppress(Damaged), memory.reading(held.path) as block:
                    return await self._send(request, block)
        raise web.HTTPNotFound(text=f"this node holds no part {number} of step {save.step}")

    async def _send(self, request: web.Request, block: memoryview) -> web.StreamResponse:
        try:
            begin, end, _ = request.http_range.indices(len(block))
        except ValueError as error:
            raise web.HTTPRequestRangeNotSatisfiable(text=str(error)) from error
        answer = web.StreamResponse(status=206)
        answer.content_length = max(0, end - begin)
        await answer.prepare(request)
        for at in range(begin, end, CHUNK):
            await answer.write(bytes(block[at : min(at + CHUNK, end)]))
        await answer.write_eof()
        return answer

    async def _take(self, request: web.Request) -> web.Response:
        """Keep a copy of another node's block, by the slot it has there.

        Ranks shift, and part numbers with them: by those, each shift would leave another set of blocks.
        """
        size = request.content_length
        if size is None or size < START:
            raise web.HTTPLengthRequired(text="a block comes with its length")
        mark, _, number = parse_path(request)
        slot = request.query.get("slot", str(number))
        if not slot.isdecimal() or len(slot) > 7:
            raise web.HTTPBadRequest(text=f"slot is {slot!r}, and must be a number")
        writer = Writer(self._folder, f"copy-{int(slot)}-{mark}")
        try:
            with writer.block(size) as block:
                await receive(request, block[:size])
        except NoRoom as error:
            raise web.HTTPInsufficientStorage(text=str(error)) from error
        except Damaged as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        finally:
            writer.close()
        return web.Response(status=204)

    async def _hear(self, request: web.Request) -> web.Response:
        try:
            written = decode_as(await request.read(), Written)
        except UNREADABLE as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        try:
            committed = await self._written(written)
        except Exception as error:  # of a file system; the other node tries again
            raise web.HTTPServiceUnavailable(text=str(error)) from error
        if committed is None:
            return web.Response(status=204)
        return web.Response(body=msgspec.json.encode(committed), content_type="application/json")


async def receive(request: web.Request, block: memoryview) -> None:
    """Write a block as it comes; its first bytes, which say that it is whole, last."""
    first, at = bytearray(), 0
    async for chunk in request.content.iter_chunked(CHUNK):
        if at + len(chunk) > len(block):
            raise Damaged(f"more than {len(block)} bytes came")
        head = chunk[: max(0, START - at)]
        first += head
        block[at + len(head) : at + len(chunk)] = chunk[len(head) :]
        at += len(chunk)
    if at != len(block) or size_of(first) != len(block):
        raise Damaged(f"{at} of {len(block)} bytes came")
    block[:START] = first


def parse_path(request: web.Request) -> tuple[str, Save, int]:
    """Return the mark of the place, the save and the part that a path names."""
    path = request.match_info
    return path["mark"], Save(int(path["step"]), int(path["round"])), int(path["part"])
