"""A whole cluster on this machine: the dev cluster in this process, the operator beside it in its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from elasticjob.cli.errors import Failure
from elasticjob.devcluster import DevCluster
from elasticjob.kube.client import Client

GRACE, START = 10.0, 30.0
"""Seconds that the operator has to end by itself, and to become ready."""
LOOK_EVERY = 0.05
"""Seconds between two questions whether it is ready, which nothing announces."""


@dataclass
class Laptop:
    """A running cluster; `operator` may be stopped and started again."""

    kubeconfig: Path
    client: Client
    state: Path
    operator: asyncio.subprocess.Process | None = None
    probes: str = ""

    @property
    def operator_log(self) -> Path:
        """Where the operator writes what it does."""
        return self.state / "operator.log"

    async def start_operator(self) -> None:
        """Start the operator, which installs the resource definitions; `operator_ready` waits for it."""
        self.probes = f"127.0.0.1:{free_port()}"
        with self.operator_log.open("ab") as log:
            self.operator = await asyncio.create_subprocess_exec(
                *operator_command(self.kubeconfig, self.probes),
                env=environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def operator_ready(self) -> None:
        """Return once the operator works and its webhooks are registered; Failure if that never comes."""
        process = self.operator
        with suppress(TimeoutError):
            async with asyncio.timeout(START), aiohttp.ClientSession() as session:
                while process and process.returncode is None:
                    with suppress(aiohttp.ClientError):
                        async with session.get(f"http://{self.probes}/readyz") as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(LOOK_EVERY)
        ended = (
            f"ended with exit code {process.returncode}" if process and process.returncode else "is not ready"
        )
        last = (self.operator_log.read_text().splitlines() or ["(its log is empty)"])[-1]
        raise Failure(f"the operator {ended}: {last}", next_step=f"see {self.operator_log}")

    async def stop_operator(self) -> None:
        """End the operator: SIGTERM, and SIGKILL if it does not follow."""
        process, self.operator = self.operator, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(GRACE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill_operator(self) -> int:
        """SIGKILL the operator, which has no chance to say anything; return its pid."""
        process, self.operator = self.operator, None
        if process is None:
            raise Failure("the operator is not running: start it before it can be killed")
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        return process.pid


@asynccontextmanager
async def laptop(state: Path) -> AsyncIterator[Laptop]:
    """Start a cluster with its operator, keeping files in `state`; nothing of it runs when this ends."""
    async with DevCluster(state) as cluster, Client(cluster.config()) as client:
        here = Laptop(cluster.kubeconfig, client, state)
        try:
            await here.start_operator()
            await here.operator_ready()
            yield here
        finally:
            await here.stop_operator()


def operator_command(kubeconfig: Path, probes: str) -> list[str]:
    """Return the command that runs the operator with this interpreter."""
    flags = {"--kubeconfig": str(kubeconfig), "--probes": probes, "--webhook-port": "0"}
    given = [word for flag in flags.items() for word in flag]
    return [sys.executable, "-m", "elasticjob.cli", "operator", "--install", *given]


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs that share this machine's cores with training."""
    return {"PYTHONUNBUFFERED": "1", **inherited, "OMP_NUM_THREADS": "1"}
