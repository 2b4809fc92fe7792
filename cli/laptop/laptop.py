"""A whole cluster on this machine: the dev cluster in this process, the operator beside it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from elasticjob.cli.errors import Failure
from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.ports import free_port
from elasticjob.devcluster import DevCluster
from elasticjob.kube.client.client import Client

GRACE, START = 10.0, 180.0
"""Seconds that the operator has to exit by itself, and to become ready; the machine may be very busy."""
LOOK_EVERY = 0.05
"""Seconds between polls of its readiness."""
FIRST_PAUSE, LONGEST_PAUSE, STEADY = 1.0, 60.0, 600.0
"""Seconds before an operator that died is started again; after a run of STEADY seconds, FIRST_PAUSE again."""


class OperatorProcess:
    """The operator as a process of its own, which installs its CRDs; it may be restarted."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self.log = log
        self._kubeconfig = kubeconfig
        self._probes = ""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Its pid. Failure if it is not running."""
        if self._process is None:
            raise Failure("the operator is not running", next_step="start it first")
        return self._process.pid

    @property
    def url(self) -> str:
        """The URL of its probes and metrics."""
        return f"http://{self._probes}"

    async def start(self) -> None:
        """Start it; `ready` waits for it."""
        self._probes = f"127.0.0.1:{free_port()}"
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *operator_command(self._kubeconfig, self._probes),
                env=environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Return once it is ready and its webhooks are registered. Failure after a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(START), aiohttp.ClientSession() as session:
                while self._process and self._process.returncode is None:
                    with suppress(aiohttp.ClientError):
                        async with session.get(f"{self.url}/readyz") as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(LOOK_EVERY)
        raise Failure(f"the operator {self._fate()}: {self.last_line()}", next_step=f"see {self.log}")

    async def wait(self) -> int:
        """Wait until it ends; return its exit code, negative after a signal. Failure if it is not running."""
        if self._process is None:
            raise Failure("the operator is not running", next_step="start it first")
        return await self._process.wait()

    async def stop(self) -> None:
        """Stop it: SIGTERM, then SIGKILL after a grace period."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(GRACE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill(self) -> int:
        """SIGKILL it; return its pid."""
        process, self._process = self._process, None
        if process is None:
            raise Failure("the operator is not running", next_step="start it before it is killed")
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return process.pid

    def last_line(self) -> str:
        """Return its last log line."""
        return (self.log.read_text().splitlines() or ["(its log is empty)"])[-1]

    def _fate(self) -> str:
        code = self._process.returncode if self._process else None
        return f"is not ready after {START:.0f} s" if code is None else f"ended with exit code {code}"


@dataclass(frozen=True)
class Restart:
    """The answer to an operator's death: when it is started again, and a sentence about it."""

    deaths: int
    pause: float
    sentence: str


def after_death(code: int, seconds: float, deaths: int, last_line: str) -> Restart:
    """Return the restart after a run of so many seconds, before which it had died `deaths` times in a row."""
    deaths = 1 if seconds >= STEADY else deaths + 1
    pause = min(FIRST_PAUSE * 2.0 ** min(deaths - 1, 10), LONGEST_PAUSE)
    cause = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Restart(
        deaths,
        pause,
        f"the operator {cause} and is started again in {pause:.0f} s; its log ends: {last_line}",
    )


@asynccontextmanager
async def kept_running(operator: OperatorProcess, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Start a running operator again whenever it dies, until exit; `tell` gets a sentence each time."""
    task = asyncio.create_task(_keep_running(operator, tell))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _keep_running(operator: OperatorProcess, tell: Callable[[str], None]) -> None:
    deaths = 0
    while True:
        began = time.monotonic()
        code = await operator.wait()
        restart = after_death(code, time.monotonic() - began, deaths, operator.last_line())
        deaths = restart.deaths
        tell(restart.sentence)
        await asyncio.sleep(restart.pause)
        await operator.start()


@dataclass(frozen=True)
class Laptop:
    """A running cluster and its operator."""

    kubeconfig: Path
    client: Client
    state: Path
    operator: OperatorProcess


@asynccontextmanager
async def laptop(state: Path) -> AsyncIterator[Laptop]:
    """Start a cluster with its operator, keeping files in `state`; both are stopped on exit."""
    async with (
        DevCluster(state, supervisor=preloaded.COMMAND) as cluster,
        Client(cluster.config()) as client,
        operator_of(cluster.kubeconfig, state) as operator,
    ):
        yield Laptop(cluster.kubeconfig, client, state, operator)


@asynccontextmanager
async def operator_of(kubeconfig: Path, state: Path) -> AsyncIterator[OperatorProcess]:
    """Run an operator for a cluster; it is ready on entry, and stopped on exit."""
    operator = OperatorProcess(kubeconfig, state / "operator.log")
    try:
        await operator.start()
        await operator.ready()
        yield operator
    finally:
        await operator.stop()


def operator_command(kubeconfig: Path, probes: str) -> list[str]:
    """Return the command that runs the operator with this interpreter."""
    flags = {"--kubeconfig": str(kubeconfig), "--probes": probes, "--webhook-port": "0"}
    given = [word for flag in flags.items() for word in flag]
    return [sys.executable, "-m", "elasticjob.cli", "operator", "--install", *given]


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs that share this machine's cores with training."""
    return {"PYTHONUNBUFFERED": "1", **inherited, "OMP_NUM_THREADS": "1"}
