"""Copies of another node's blocks, which a process of their own takes beside the training.

A node offers its newest blocks, and the next one fetches them (`taking.py`). That process gets only the time
that the training leaves; where that is none, it begins again with as much right to it as others.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import psutil
from msgspec import Meta

from elasticjob.api.rpc.message import decode_as
from elasticjob.trainer.agent.processes.beside import lines_of, spawn
from elasticjob.trainer.checkpoint.part import START

TAKING: Final = "elasticjob.trainer.agent.checkpoints.taking"
BEHIND: Final = "behind"
LOOK: Final = 1.0  # seconds between two looks at how a copy gets on
STARVED: Final = 1.0  # seconds for which it could have run, and had no processor
Number = Annotated[int, Meta(ge=0)]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A block of `size` bytes that `server` has, by the `slot` it has there.

    Ranks shift, and part numbers with them: by those, each shift would leave another set of copies.
    """

    server: str
    mark: Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
    step: Number
    round: Number
    part: Number
    slot: Annotated[int, Meta(ge=0, lt=10**7)]
    size: Annotated[int, Meta(gt=START)]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an offer: the block is copied, or the `problem` tells why it is not."""

    offer: Offer
    problem: str = ""


class Starved(Exception):
    """The processors had no time for a copy."""


class Copies:
    """The copies that a node has of another's blocks: of each slot the newest that was offered."""

    def __init__(self, folder: Path, token: str, taken: Callable[[Taken], Awaitable[None]]) -> None:
        self._folder, self._token, self._taken = folder, token, taken
        self._offers: dict[tuple[str, int], Offer] = {}
        self._running: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = asyncio.StreamReader()
        self._behind = [BEHIND]

    def hear(self, offer: Offer) -> None:
        """Take this block when those before it are here; one of the same slot that waits is overtaken."""
        self._offers[offer.mark, offer.slot] = offer
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._take_all())

    async def close(self) -> None:
        """Take no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._end()

    async def _take_all(self) -> None:
        while self._offers:
            offer = self._offers.pop(next(iter(self._offers)))
            problem = ""
            for _ in range(2):
                try:
                    problem = await self._take(offer)
                    break
                except Starved:
                    self._behind = []
                except (OSError, EOFError, psutil.Error) as error:
                    problem = repr(error)
                await self._end()
            await self._taken(Taken(offer=offer, problem=problem))

    async def _take(self, offer: Offer) -> str:
        """Have a block copied; return what prevented that. Starved if nothing else did."""
        if self._process is None:
            self._process = spawn(
                [sys.executable, "-m", TAKING, str(self._folder), *self._behind], os.environ
            )
            self._answers = await lines_of(self._process)
            self._write(self._process, self._token.encode())
        self._write(self._process, msgspec.json.encode(offer))
        answer = asyncio.ensure_future(self._answers.readline())
        before = delay(self._process.pid)
        try:
            while not (await asyncio.wait({answer}, timeout=LOOK))[0]:
                if self._behind and delay(self._process.pid) > before + STARVED:
                    raise Starved
                if psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED:
                    raise EOFError("the process that takes copies was stopped")
        finally:
            answer.cancel()
        if not answer.result():
            raise EOFError("the process that takes copies has ended")
        return decode_as(answer.result(), str)

    @staticmethod
    def _write(process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(line + b"\n")

    async def _end(self) -> None:
        if (process := self._process) is not None:
            self._process = None
            process.kill()
            if process.stdin is not None:
                process.stdin.close()
            await asyncio.to_thread(process.wait)  # which takes a processor, too


def delay(pid: int) -> float:
    """Return for how many seconds a process had no processor and could have run; 0.0 where nobody counts."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
