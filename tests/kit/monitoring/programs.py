"""A program of another project that serves HTTP, for as long as a test needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from lab.waiting import until


@asynccontextmanager
async def serving(command: Sequence[str], ready: str, log: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Run a command, from when the URL `ready` answers 200 until the end of the block."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)

    async def is_ready() -> bool:
        assert process.returncode is None, f"it ended: {log}"
        try:
            async with session.get(ready) as reply:
                return reply.status == 200
        except aiohttp.ClientError:
            return False

    try:
        async with aiohttp.ClientSession() as session:
            await until(is_ready, f"{ready} answers")
            yield session
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
