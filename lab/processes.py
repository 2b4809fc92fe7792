"""Child programs: their log files, readiness, and end.

A program is identified by its pid *and* its start time, both kept in a file, so that another process can end
it later, and never a process that was given the same pid since.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

LOOK_AGAIN_SECONDS = 0.05
LOG_LINES = 15


class ProgramFailed(RuntimeError):
    """A program ended at once, or was not ready in time; the message ends with the last lines of its log."""


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


class Programs:
    """The programs of one folder: `NAME.json` has the identity, `NAME.log` the output.

    With `outlive` they run on when this process ends; otherwise the kernel kills them with the thread that
    started them.
    """

    def __init__(self, folder: Path, *, outlive: bool = False) -> None:
        self._folder = folder
        self._outlive = outlive
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> tuple[str, ...]:
        """All that run, by name."""
        return tuple(sorted(n for path in self._folder.glob("*.json") if self.identity(n := path.stem)))

    def identity(self, name: str) -> Identity | None:
        """The process of that name, if it runs."""
        self._reap(name)
        try:
            kept = Identity(**json.loads(self._file(name).read_text()))
        except FileNotFoundError:
            return None
        return kept if identity_of(kept.pid) == kept else None

    def pid(self, name: str) -> int:
        """The pid of a program that runs. Raises ProgramFailed where it does not."""
        return self._running(name).pid

    def rss(self, name: str) -> int:
        """Resident bytes of a program that runs. Raises ProgramFailed where it does not."""
        resident = Path(f"/proc/{self.pid(name)}/statm").read_text().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        """Start a program in a session of its own; one that runs already is left alone."""
        if self.identity(name):
            return
        whole = list(command) if self._outlive else [*_dying_with_us(), *command]
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, start_new_session=True
            )
        self._children[name] = child
        if found := identity_of(child.pid):
            self._file(name).write_text(json.dumps({"pid": found.pid, "started": found.started}))

    def wait_ready(self, name: str, ready: Callable[[], bool], seconds: float = 240.0) -> None:
        """Until `ready()`. Raises ProgramFailed as soon as the program has ended, or when time is up."""
        until = time.monotonic() + seconds
        while not ready():
            if not (found := self.identity(name)):
                raise ProgramFailed(f"{name} ended at once: {self.last_words(name)}")
            if time.monotonic() > until:
                raise ProgramFailed(f"{name} was not ready after {seconds:g} s: {self.last_words(name)}")
            _wait_for_end(found, LOOK_AGAIN_SECONDS)

    def stop(self, name: str, grace: float = 10.0) -> None:
        """SIGTERM, after `grace` seconds SIGKILL; returns when it has ended. One that is gone is fine."""
        if found := self.identity(name):
            for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
                send(found, number)
                if _wait_for_end(found, seconds):
                    break
        self._reap(name, wait=True)
        self._file(name).unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """SIGKILL; returns when it has ended. Raises ProgramFailed where it does not run."""
        self._running(name)
        self.stop(name, 0.0)

    def last_words(self, name: str) -> str:
        """The path of the log, and its last lines."""
        log = self.log(name)
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
        return "\n  ".join((f"its log {log} ends with", *lines)) if lines else f"its log {log} is empty"

    def _running(self, name: str) -> Identity:
        if found := self.identity(name):
            return found
        raise ProgramFailed(f"{name} does not run: start it first; {self.last_words(name)}")

    def _reap(self, name: str, *, wait: bool = False) -> None:
        if child := self._children.get(name):
            if wait:
                child.wait()
            if child.poll() is not None:
                del self._children[name]

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def send(to: Identity, number: signal.Signals) -> bool:
    """Send a signal to that process, unless it has ended; return whether it was sent."""
    if (handle := _open(to)) is None:
        return False
    with closing(handle), suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle.number, number)
        return True
    return False


class _Handle:
    """A pidfd, which refers to its process even if the pid is reused."""

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


def _open(found: Identity) -> _Handle | None:
    try:
        handle = _Handle(os.pidfd_open(found.pid))
    except ProcessLookupError:
        return None
    if identity_of(found.pid) == found:
        return handle
    handle.close()
    return None


def _wait_for_end(found: Identity, seconds: float) -> bool:
    """Whether the process has ended, at the latest after so many seconds."""
    if (handle := _open(found)) is None:
        return True
    with closing(handle):
        return bool(select.select([handle.number], [], [], seconds)[0])


def _dying_with_us() -> list[str]:
    """The prefix of a command that is killed when this process ends."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []
