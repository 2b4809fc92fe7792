"""Brain as a process beside a cluster of a test."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from lab.waiting import until


@dataclass
class BrainProcess:
    """A Brain of a cluster, as a process that may be killed and started again."""

    command: list[str]
    port: int
    log: Path
    environ: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                env={
                    **os.environ,
                    "ELASTICJOB_BRAIN_EVERY": "0.3",
                    "ELASTICJOB_BRAIN_PACE": "0.02",
                    **self.environ,
                },
                stdout=log,
                stderr=log,
            )
        await until(self._answers, f"Brain answers: {self.log}")

    async def end(self, how: str = "terminate") -> None:
        if self.process and self.process.returncode is None:
            getattr(self.process, how)()
            await self.process.wait()

    async def get(self, path: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as reply:
            return await reply.json(content_type=None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _answers(self) -> bool:
        try:
            return "jobs" in await self.get("/v1/jobs")
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def brain_of(
    kubeconfig: Path, folder: Path, key: Path, port: int, *, probes: str = "", **environ: str
) -> AsyncIterator[BrainProcess]:
    """Run a Brain until the end of the block; its /metrics are at `probes`, and `environ` are settings."""
    flags = {
        "--kubeconfig": kubeconfig,
        "--database": f"sqlite:///{folder / 'brain.db'}",
        "--port": port,
        "--probes": probes,
        "--key-file": key,
    }
    words = [str(word) for flag in flags.items() for word in flag]
    command = [sys.executable, "-m", "elasticjob.cli", "brain", *words]
    found = BrainProcess(command, port, folder / "brain.log", environ)
    try:
        await found.start()
        yield found
    finally:
        await found.end()
