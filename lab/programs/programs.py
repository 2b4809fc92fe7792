"""Programs of a benchmark: each in a process of its own, measured from outside, ended with the benchmark."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil

from lab.paths import ROOT


class ProgramFailed(RuntimeError):
    """A program of the benchmark ended badly; the message holds its last words."""


class TooSlow(ProgramFailed):
    """A program of the benchmark said nothing in time."""


@dataclass(frozen=True)
class Program:
    """A process that runs, with its output."""

    process: subprocess.Popen[str]
    errors: Path
    name: str

    def line(self, patience: float | None = None) -> str:
        """Return the next line that it prints. Raises ProgramFailed where it ends instead, or TooSlow."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], patience)[0]:
            raise TooSlow(f"{self.name} was not done after {patience:.0f} s")
        if line := self.process.stdout.readline():
            return line.strip()
        raise ProgramFailed(
            f"{self.name} ended with {self.process.wait()}: {self.errors.read_text()[-2000:]}"
        )

    def result(self, patience: float | None = None) -> Any:
        """Return the JSON in its next line; raises as `line` does."""
        return json.loads(self.line(patience))

    def tell(self) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Ask it to end, then make it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def running(module: str, *args: str, environ: Mapping[str, str] | None = None) -> Iterator[Program]:
    """Run `python -m module args` in a session of its own, for as long as the block lasts."""
    command = [*_dying_with_us(), sys.executable, "-m", module, *args]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        errors = Path(folder, "stderr")
        with errors.open("w") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        program = Program(process, errors, " ".join((module, *args[:2])))
        try:
            yield program
        finally:
            program.end()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


@dataclass(frozen=True)
class Usage:
    """The resources used by a process so far."""

    cpu_seconds: float
    rss: int


def usage(pid: int) -> Usage:
    """Return what a process has used so far."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Usage(times.user + times.system, process.memory_info().rss)


def wait_until_ready(program: Program, url: str, patience: float = 60.0) -> None:
    """Return when `url` answers with 200. Raises ProgramFailed when the program ends, or time is up."""
    until = time.monotonic() + patience
    while not _answers(url):
        if program.process.poll() is not None or time.monotonic() > until:
            raise ProgramFailed(f"{program.name} is not ready: {program.errors.read_text()[-2000:]}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:  # a loopback address of our own
            return bool(answer.status == 200)
    except OSError:
        return False


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as ^C does: what it started is ended first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def _dying_with_us() -> list[str]:
    """The prefix of a command that is to be killed when we are, however we are."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL"] if found else []
