"""A whole cluster on this machine: the dev cluster in this process, the operator beside it in its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from elasticjob.cli.errors import Failure
from elasticjob.devcluster import DevCluster
from elasticjob.kube.client import Client
from elasticjob.kube.config import load

GRACE = 10.0
"""Seconds that the operator has to end by itself."""


@dataclass
class Laptop:
    """A running cluster; `operator` may be stopped and started again."""

    kubeconfig: Path
    client: Client
    state: Path
    operator: asyncio.subprocess.Process | None = field(default=None)

    @property
    def operator_log(self) -> Path:
        """Where the operator writes what it does."""
        return self.state / "operator.log"

    async def start_operator(self) -> None:
        """Start the operator; it installs the resource definitions. Failure if it ends at once."""
        with self.operator_log.open("ab") as log:
            self.operator = await asyncio.create_subprocess_exec(
                *operator_command(self.kubeconfig),
                env=environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

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
    async with DevCluster(state) as cluster, Client(await load(cluster.kubeconfig)) as client:
        here = Laptop(cluster.kubeconfig, client, state)
        try:
            await here.start_operator()
            yield here
        finally:
            await here.stop_operator()


def operator_command(kubeconfig: Path) -> list[str]:
    """Return the command that runs the operator with this interpreter."""
    return [sys.executable, "-m", "elasticjob.cli", "operator", "--kubeconfig", str(kubeconfig), "--install"]


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs that share this machine's cores with training."""
    return {"PYTHONUNBUFFERED": "1", **inherited, "OMP_NUM_THREADS": "1"}
