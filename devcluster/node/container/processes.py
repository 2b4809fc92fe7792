"""Container processes as the kubelet sees them: start, signal, limit, end. `supervisor.py` is the other side.

async with Nursery() as nursery:
    process = await nursery.start(Order(argv=("sleep", "3"), env={}, cwd="/", log=path))
    end = await process.ended
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

SUPERVISOR: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py")))
"""The program that starts containers; it is given a descriptor as its last argument."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run: `argv[0]` is looked up in the PATH of `env`; `memory` is a limit in bytes, 0 for
    unlimited.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    log: str
    memory: int = 0
    log_limit: int = 64 * 1024 * 1024
    """Bytes after which the log begins anew."""


class End(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, 128 + n after signal n."""

    code: int
    oom: bool = False


class CannotStart(Exception):
    """The program could not be executed; the message says which and why."""


class _Word(msgspec.Struct, frozen=True):
    """One line from the supervisor."""

    started: int | None = None
    refused: str | None = None
    limited: bool | None = None
    code: int | None = None
    oom: bool = False


LOST = End(137)
"""The end of a container whose keeper vanished; it died with it."""


class Process(asyncio.Protocol):
    """One running container. `ended` is done when its last process is gone and its log is complete."""

    def __init__(self, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._link = link
        self.started: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[End] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self._limited: list[asyncio.Future[bool]] = []
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._decoder = msgspec.json.Decoder(_Word)

    @property
    def pid(self) -> int:
        """The container's first process."""
        return self.started.result()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the container's first process, which is what a container runtime does."""
        self._say({"signal": int(number)})

    def kill(self) -> None:
        """SIGKILL to every process of the container."""
        self._say({"kill": True})

    async def limit(self, memory: int) -> bool:
        """Change the memory limit (bytes, 0 for unlimited). False if the container already uses more."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.gone.done():
            return False
        self._limited.append(answer)
        self._say({"memory": memory})
        return await answer

    def close(self) -> None:
        """Release the container: its supervisor kills all remaining processes."""
        if self._transport is not None:
            self._transport.close()

    def order(self, order: Order) -> None:
        """The first line to the supervisor: the order to start."""
        assert self._transport is not None
        self._transport.write(msgspec.json.encode(order) + b"\n")

    def _say(self, message: dict[str, int]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(msgspec.json.encode(message) + b"\n")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(self._decoder.decode(line))

    def _hear(self, word: _Word) -> None:
        if word.started is not None:
            self.started.set_result(word.started)
        if word.refused is not None and not self.started.cancelled():
            self.started.set_exception(CannotStart(word.refused))
        if word.limited is not None:
            self._limited.pop(0).set_result(word.limited)
        if word.code is not None:
            self.ended.set_result(End(word.code, word.oom))

    def connection_lost(self, exc: Exception | None) -> None:
        with contextlib.suppress(OSError):  # what we said met its end: its last words are still unread
            while exc is not None and (data := self._link.recv(65536)):
                self.data_received(data)
        if not self.started.done():
            self.started.set_exception(CannotStart("the supervisor of the container vanished"))
        if not self.ended.done():
            self.ended.set_result(LOST)
        for answer in self._limited:
            answer.set_result(False)
        self._limited.clear()
        self.gone.set_result(None)


class Nursery:
    """Starts processes that never outlive it. Leaving the context kills all that run, and waits for that."""

    def __init__(
        self, supervisor: Sequence[str] = SUPERVISOR, environ: Mapping[str, str] = os.environ
    ) -> None:
        """`supervisor` is a program that runs `supervisor.main`: it is given a descriptor, and `environ`."""
        self._command = supervisor
        self._environ = environ
        self._processes: set[Process] = set()

    async def __aenter__(self) -> Self:
        self._door, inside = socket.socketpair()
        with inside:
            self._supervisor = subprocess.Popen(  # noqa: ASYNC220 - fork and exec only, a millisecond
                [*self._command, str(inside.fileno())],
                pass_fds=(inside.fileno(),),
                stdin=subprocess.DEVNULL,
                env=self._environ,
                cwd="/",
                start_new_session=True,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = list(self._processes)
        for process in running:
            process.kill()
        if running:
            await asyncio.wait([process.gone for process in running], timeout=5)
        for process in running:
            process.close()
        self._door.close()
        await asyncio.to_thread(self._supervisor.wait)

    async def start(self, order: Order) -> Process:
        """Start one container. Raises CannotStart."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            loop = asyncio.get_running_loop()
            _, process = await loop.create_connection(lambda: Process(ours), sock=ours)
            socket.send_fds(self._door, [b"."], [theirs.fileno()])
        self._processes.add(process)
        process.gone.add_done_callback(lambda _: self._processes.discard(process))
        process.order(order)
        try:
            await process.started
        except asyncio.CancelledError:
            process.close()
            raise
        return process
