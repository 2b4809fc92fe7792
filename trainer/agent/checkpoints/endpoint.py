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
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler

from elasticjob.api.rpc.message import decode_as
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.agent.checkpoints.copies import Offer, Taken
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.part import Damaged, Save, head_in

WRITTEN: Final = "/v1/written"
OFFERS: Final = "/v1/offers"
TAKEN: Final = "/v1/taken"
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
        self,
        folder: Path,
        token: str,
        written: Callable[[Written], Awaitable[bool | None]],
        offered: Callable[[Offer], None],
        taken: Callable[[Taken], None],
    ) -> None:
        self._folder, self._token, self._written = folder, token, written
        self._offered, self._taken = offered, taken
        app = web.Application(client_max_size=LARGEST_MESSAGE, middlewares=[self._authenticate])
        path = r"/v1/memory/{mark:[0-9a-f]{8}}/{step:\d{1,16}}/{round:\d{1,16}}/{part:\d{1,7}}"
        app.router.add_get(path, self._give)
        app.router.add_post(OFFERS, self._hear_of_a_block)
        app.router.add_post(TAKEN, self._hear_of_a_copy)
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
                    if head_in(block) == held.head:  # still
                        answer = BlockResponse(held.path)
                        with suppress(ConnectionError):  # of a node that is gone
                            await answer.prepare(request)
                        return answer
        raise web.HTTPNotFound(text=f"this node holds no part {number} of step {save.step}")

    async def _hear_of_a_block(self, request: web.Request) -> web.Response:
        try:
            offer = decode_as(await request.read(), Offer)
        except UNREADABLE as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        self._offered(offer)
        return web.Response(status=202)

    async def _hear_of_a_copy(self, request: web.Request) -> web.Response:
        try:
            self._taken(decode_as(await request.read(), Taken))
        except UNREADABLE as error:
            raise web.HTTPBadRequest(text=str(error)) from error
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


class BlockResponse(web.FileResponse):
    """A block that the kernel sends, once: in its handler, where nobody overwrites it."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it, unless it is sent."""
        return None if self.prepared else await super().prepare(request)


def parse_path(request: web.Request) -> tuple[str, Save, int]:
    """Return the mark of the place, the save and the part that a path names."""
    path = request.match_info
    return path["mark"], Save(int(path["step"]), int(path["round"])), int(path["part"])
