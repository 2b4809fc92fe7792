"""Programs as processes: how they start, when they are ready, what they print, and how they end.

A process is identified by its pid *and* its start time. Of one that is to outlive us both are in a file, so
that another process can end it later, and never a process that was given the same pid since.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar, Final, Self
from urllib.request import urlopen

from lab.paths import ROOT

LOOK_AGAIN_SECONDS: Final = 0.05
LOG_LINES: Final = 15
READY_SECONDS: Final = 240.0

Command = Sequence[str | Path]


class ProgramFailed(RuntimeError):
    """A program ended at once, or was not ready in time; the message ends with the last lines of its log."""


class TooSlow(ProgramFailed):
    """A program printed nothing in time."""


@dataclass(frozen=True)
class Identity:
    """One process of this machine since it was booted."""

    pid: int
    started: int
    """Clock ticks from boot to its start."""


def identity_of(pid: int) -> Identity | None:
    """The process that has this pid now; None where there is none, or only one that waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else Identity(pid, int(fields[19]))


@dataclass
class Process:
    """A program, which may be started again; `with` and `async with` run it until the end of the block.

    NAME.log in `folder` is its output. It is ready when GET `url` + `ready` is answered with 200, without a
    URL when its log has the word `ready`, or when `ready()` is true. `environ` is all of its environment, by
    default ours. With `outlive` it runs on when this process ends, and NAME.json has its identity; otherwise
    the kernel kills it with the thread that started it.
    """

    name: str
    command: Command | Callable[[], Command]
    folder: Path
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    url: str = ""
    ready: str | Callable[[], bool] = ""
    outlive: bool = False
    cwd: Path = ROOT
    starts: int = 0
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _identity: Identity | None = None
    _since: int = 0
    _was_ready: bool = False

    PIPES: ClassVar[Mapping[str, int]] = {"stdin": subprocess.DEVNULL}
    END: ClassVar[signal.Signals] = signal.SIGTERM
    """Asks it to end."""

    # What it is

    @property
    def words(self) -> Command:
        """Its command."""
        return self.command() if callable(self.command) else self.command

    @property
    def identity(self) -> Identity | None:
        """The process, if it runs."""
        if self._child:
            return self._identity if self._child.poll() is None else None
        try:
            kept = Identity(**json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None
        return kept if identity_of(kept.pid) == kept else None

    @property
    def pid(self) -> int:
        """Its pid. Raises ProgramFailed where it does not run."""
        return self._running.pid

    @property
    def code(self) -> int | None:
        """The exit code of a child of ours, negative after a signal; None while it runs."""
        return self._child.poll() if self._child else None

    @property
    def works(self) -> bool:
        """Whether it runs, and has been ready since it was last started."""
        return self._was_ready and self.identity is not None

    @property
    def rss(self) -> int:
        """Resident bytes. Raises ProgramFailed where it does not run."""
        resident = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far. Raises ProgramFailed where it does not run."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def output(self) -> str:
        """What it has printed since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._since)
            return log.read().decode(errors="replace")

    def tail(self, lines: int = LOG_LINES) -> list[str]:
        """The last lines of its log."""
        return self.log.read_text(errors="replace").splitlines()[-lines:] if self.log.exists() else []

    def last_words(self) -> str:
        """The path of the log, and its last lines."""
        lines = self.tail()
        end = "ends with" if lines else "is empty"
        return "\n  ".join((f"its log {self.log} {end}", *lines))

    # Start

    def spawn(self) -> None:
        """Start it in a session of its own; one that runs already is left alone."""
        if self.identity:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        prefix = () if self.outlive else _dying_with_us()
        with self.log.open("ab") as log:
            self._since = log.tell()
            streams: dict[str, Any] = {"stdout": log, "stderr": log, **self.PIPES}
            self._child = subprocess.Popen(
                [*prefix, *self.words], cwd=self.cwd, env=self.environ, start_new_session=True, **streams
            )
        self._identity = identity_of(self._child.pid)
        self.starts, self._was_ready = self.starts + 1, False
        if self.outlive and (now := self._identity):
            self._file.write_text(json.dumps({"pid": now.pid, "started": now.started}))

    def start(self) -> None:
        """`spawn`, and return when it is ready; raises as `wait_ready` does."""
        self.spawn()
        self.wait_ready()

    async def up(self, seconds: float = READY_SECONDS) -> None:
        """`start` for a loop, which goes on meanwhile."""
        self.spawn()
        looks = self._looks(None, seconds)
        while await asyncio.to_thread(next, looks, None):  # noqa: ASYNC110  # of another process
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def again(self, after: float = 0.0) -> None:
        """SIGKILL, and `up` some seconds later."""
        self.kill()
        await asyncio.sleep(after)
        await self.up()

    def wait_ready(self, ready: Callable[[], bool] | None = None, seconds: float = READY_SECONDS) -> None:
        """Return when it is ready, or when `ready()`.

        Raises ProgramFailed as soon as it has ended, or when time is up.
        """
        for identity in self._looks(ready, seconds):
            _wait_for_end(identity, LOOK_AGAIN_SECONDS)

    def is_ready(self) -> bool:
        """Whether it is ready now."""
        if callable(self.ready):
            return self.ready()
        return answers(self.url + self.ready) if self.url else self.ready in self.output

    def _looks(self, ready: Callable[[], bool] | None, seconds: float) -> Iterator[Identity]:
        """Each time that it is not ready yet."""
        deadline = time.monotonic() + seconds
        while not (ready or self.is_ready)():
            if not (identity := self.identity):
                raise ProgramFailed(f"{self.name} ended at once: {self.last_words()}")
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{self.name} was not ready after {seconds:g} s: {self.last_words()}")
            yield identity
        self._was_ready = True

    # End

    def send(self, number: signal.Signals) -> bool:
        """Send a signal, unless it has ended; return whether it was sent."""
        return bool((identity := self.identity) and send(identity, number))

    def freeze(self) -> None:
        """Stop it as SIGSTOP does, until `thaw`."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def stop(self, grace: float = 10.0) -> None:
        """Ask it to end, kill it after `grace` seconds; returns when it has. One that is gone is fine."""
        if identity := self.identity:
            for number, seconds in ((self.END, grace), (signal.SIGKILL, 10.0)):
                if seconds and send(identity, number) and _wait_for_end(identity, seconds):
                    break
        if self._child:
            self._child.wait()
        self._file.unlink(missing_ok=True)

    async def down(self, grace: float = 60.0) -> None:
        """`stop` for a loop, which goes on meanwhile."""
        await asyncio.to_thread(self.stop, grace)

    def kill(self) -> None:
        """SIGKILL; returns when it has ended. Raises ProgramFailed where it does not run."""
        send(self._running, signal.SIGKILL)
        self.stop(0.0)

    def kill_all(self) -> None:
        """SIGKILL a child of ours and all that it has started in its session; returns when it has ended."""
        if self._child:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    async def wait(self) -> int:
        """Return the exit code of a child of ours, once it has ended."""
        while (code := self.code) is None:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return code

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await self.up()
        except BaseException:
            await self.down(0.0)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    @property
    def _running(self) -> Identity:
        if identity := self.identity:
            return identity
        raise ProgramFailed(f"{self.name} does not run: start it first; {self.last_words()}")

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.name}.json"


class Dialogue(Process):
    """A program whose standard input and output are ours; its log has its errors."""

    PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}  # noqa: RUF012

    def line(self, patience: float | None = None) -> str:
        """Return the next line that it prints. Raises ProgramFailed where it ends instead, or TooSlow."""
        assert self._child
        assert self._child.stdout
        if patience is not None and not _is_readable(self._child.stdout.fileno(), patience):
            raise TooSlow(f"{self.name} was not done after {patience:.0f} s")
        if line := self._child.stdout.readline():
            return line.decode().strip()
        raise ProgramFailed(f"{self.name} ended with {self._child.wait()}: {self.last_words()}")

    def result(self, patience: float | None = None) -> Any:
        """Return the JSON in its next line; raises as `line` does."""
        return json.loads(self.line(patience))

    def tell(self) -> None:
        """Send it a line."""
        assert self._child
        assert self._child.stdin
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()

    def stop(self, grace: float = 10.0) -> None:
        """`stop` it, and kill what is left of its session."""
        super().stop(grace)
        self.kill_all()
        if self._child:
            for stream in (self._child.stdin, self._child.stdout):
                if stream:
                    with suppress(BrokenPipeError):
                        stream.close()


async def run(
    *command: str | Path, given: str = "", environ: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> tuple[int | None, str]:
    """Run a program to its end, `given` on its stdin; return its exit code and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        cwd=cwd,
    )
    try:
        printed, _ = await process.communicate(given.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, printed.decode()


def running(processes: Iterable[Process]) -> tuple[str, ...]:
    """The names of those that run."""
    return tuple(sorted(each.name for each in processes if each.identity))


def environment(home: Path) -> dict[str, str]:
    """The environment of programs of others: without proxies, kubeconfig and our home."""
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(home)}


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    try:
        with urlopen(url, timeout=5) as answer:  # an address of our own
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


def listens(port: int) -> bool:
    """Whether a port of this machine accepts connections."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def send(to: Identity, number: signal.Signals) -> bool:
    """Send a signal to that process, unless it has ended; return whether it was sent."""
    with _handle(to) as handle, suppress(ProcessLookupError):
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
            return True
    return False


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as ^C does: tasks are cancelled, and what it started is ended first.

    A shell's background job ignores SIGINT, and so would it SIGTERM.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _handle(of: Identity) -> Iterator[int | None]:
    """A pidfd, which refers to its process even if the pid is reused; None where it has ended."""
    try:
        number = os.pidfd_open(of.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield number if identity_of(of.pid) == of else None
    finally:
        os.close(number)


def _wait_for_end(found: Identity, seconds: float) -> bool:
    """Whether the process has ended, at the latest after so many seconds."""
    with _handle(found) as handle:
        return handle is None or _is_readable(handle, seconds)


def _is_readable(file: int, seconds: float) -> bool:
    """Whether a file has something to read within so many seconds; select knows the first 1,024 alone."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _dying_with_us() -> list[str]:
    """The prefix of a command that is killed when this process ends."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []
