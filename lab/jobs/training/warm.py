"""One process that has imported torch; agents of tests fork from it with torch warm."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from elasticjob.trainer.agent.processes import fresh, warm
from elasticjob.trainer.agent.processes.tether import tether

MODULES = (
    "torch",
    "sklearn.datasets",
    "elasticjob.trainer.torch",
    "torch.distributed.fsdp",
    "torch._dynamo",
    "elasticjob.cli.main",
    "elasticjob.cli.commands.run",
    "elasticjob.trainer.agent.loop",
    "typer._adapters",
)
AGENT, RUN = 0, 1
"""What a fork does, by its slot: be an agent with a warm process beside it, or run a script as it is."""


@dataclass
class Process:
    """A program that was started by the warm process."""

    pid: int
    stdout: asyncio.StreamReader
    ended: asyncio.Future[int] = field(repr=False)

    @property
    def returncode(self) -> int | None:
        """The exit code, negative after a signal; None while the process runs."""
        return self.ended.result() if self.ended.done() else None

    async def wait(self) -> int:
        """Return its exit code when it has ended."""
        return await asyncio.shield(self.ended)


class Warm:
    """Starts agents and scripts, one after another."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._running: dict[int, asyncio.Future[int]] = {}
        self._forked: asyncio.Future[int] | None = None
        self._one = asyncio.Lock()

    async def agent(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Process:
        """Run `elasticjob run` with a warm process beside it; its stderr goes to its stdout."""
        command = ("elasticjob.cli", "run", *arguments)
        return await self._fork(AGENT, command, environment, module=True)

    async def run(
        self, command: Sequence[str], environment: Mapping[str, str], *, module: bool = False
    ) -> Process:
        """Run a Python script, or a module, in a process that has imported torch."""
        return await self._fork(RUN, command, environment, module=module)

    async def output(self, *command: object, **variables: str) -> tuple[int, str]:
        """Run a Python script to its end, with variables beside ours; return its exit code and output."""
        process = await self.run([*map(str, command)], {**os.environ, **variables})
        printed = await process.stdout.read()
        return await process.wait(), printed.decode()

    async def _fork(
        self, slot: int, command: Sequence[str], environment: Mapping[str, str], *, module: bool = False
    ) -> Process:
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        program, *arguments = command
        order = warm.Fork(
            slot=slot,
            script=program,
            arguments=tuple(arguments),
            module=module,
            environment=dict(environment),
            channel_variable="TEST_CHANNEL",
        )
        async with self._one:
            self._forked = loop.create_future()
            loop.add_reader(self._line, self._hear)
            warm.send(self._line, order, [writing, writing, writing])
            os.close(writing)
            pid = await self._forked
        reader = asyncio.StreamReader(limit=1 << 20)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb"))
        return Process(pid, reader, self._running[pid])

    def _hear(self) -> None:
        received = self._line.recv(65536)
        if not received:
            asyncio.get_running_loop().remove_reader(self._line)
            raise ConnectionError("the warm process has ended")
        match warm.decode_news(received):
            case warm.Forked(pid=pid) if self._forked is not None:
                self._running[pid] = asyncio.get_running_loop().create_future()
                self._forked.set_result(pid)
            case warm.Reaped(pid=pid, code=code):
                if pid in self._running:  # not of a test before
                    self._running[pid].set_result(code)


@contextmanager
def warm_process(*modules: str) -> Iterator[socket.socket]:
    """Run the process, which has imported `modules`, too; yield the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), str(theirs.fileno()), *modules],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    try:
        yield ours
    finally:
        ours.close()
        process.kill()
        process.wait()


def main() -> None:
    """Import torch and the agent; then fork for each order."""
    parent, fd = map(int, sys.argv[1:3])
    tether(parent)
    end = fresh.QuickEnd()
    warm.load((*MODULES, *sys.argv[3:]))
    order = warm.serve(socket.socket(fileno=fd))
    if order is None:
        os._exit(0)
    if order.slot == AGENT and (aside := warm.beside(os.environ)) is not None:
        aside()
        return
    with end:
        warm.work(order)


if __name__ == "__main__":
    main()
