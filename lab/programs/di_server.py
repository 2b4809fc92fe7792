"""di-server as a process beside a cluster of a test, which may be killed and started again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from lab.waiting import until


@dataclass
class DiServerProcess:
    """A di-server."""

    command: list[str]
    port: int
    log: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it; returns once its caches are in step."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command, stdout=log, stderr=log)
        await until(self._is_ready, f"di-server is ready: {self.log}")

    async def end(self, how: str = "terminate") -> None:
        """End it, by `terminate` or `kill`."""
        if self.process and self.process.returncode is None:
            getattr(self.process, how)()
            await self.process.wait()

    async def _is_ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def di_server_of(kubeconfig: Path, folder: Path, port: int) -> AsyncIterator[DiServerProcess]:
    """Run a di-server until the end of the block."""
    flags = ("--kubeconfig", str(kubeconfig), "--port", str(port), "--url", f"http://127.0.0.1:{port}")
    command = [sys.executable, "-m", "elasticjob.cli", "di-server", *flags]
    found = DiServerProcess(command, port, folder / "di-server.log")
    try:
        await found.start()
        yield found
    finally:
        await found.end()
