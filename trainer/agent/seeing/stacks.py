"""Stacks of this node's workers, for a verdict: by py-spy where it may, else by faulthandler in the worker.

py-spy also reads a stopped process. It needs the capability SYS_PTRACE, which a container has only if asked
for. It holds a running process while it reads: frames that change meanwhile would be lost. faulthandler is
registered when a worker starts (`trainer/link/stacks.py`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from elasticjob.trainer.link.stacks import SIGNAL

PY_SPY: Final = 2.0  # seconds that it may take
WRITTEN: Final = 1.5  # seconds that a worker may take to write its stacks
QUIET: Final = 0.1  # seconds without another line after which they are whole
LINES: Final = 80  # of one worker in the log; the file has all


async def stacks_of(pid: int, file: Path, *, stopped: bool) -> str:
    """Return the stacks of a worker's threads, or why there are none."""
    found = await by_py_spy(pid, stopped=stopped)
    if not found and not stopped:
        found = await by_faulthandler(pid, file)
    if found:
        return found
    if stopped:
        return "no stacks: the process is stopped, and py-spy is not installed or not permitted (SYS_PTRACE)"
    return "no stacks: py-spy is not installed or not permitted, and the worker is no Python script of ours"


async def by_py_spy(pid: int, *, stopped: bool) -> str:
    """Return what `py-spy dump` says, empty without it or without the right to look."""
    program = shutil.which("py-spy")
    if program is None:
        return ""
    as_it_is = ["--nonblocking"] if stopped else []  # py-spy cannot hold a process that is stopped already
    command = [program, "dump", *as_it_is, "--pid", str(pid)]
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PY_SPY
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # The exit code may be lost: the agent reaps every child (Workers.reap_orphans).
    words = done.stdout.decode(errors="replace").strip()
    return words if words.startswith("Process") else ""


async def by_faulthandler(pid: int, file: Path) -> str:
    """Return what the worker writes when asked by a signal; empty if it would die of the signal."""
    if not catches(pid, SIGNAL):
        return ""
    with suppress(OSError):
        os.truncate(file, 0)
    with suppress(ProcessLookupError):
        os.kill(pid, SIGNAL)
    loop = asyncio.get_running_loop()
    until, size, still = loop.time() + WRITTEN, 0, loop.time()
    while loop.time() < until and not (size and loop.time() - still >= QUIET):
        await asyncio.sleep(QUIET / 10)
        now = size_of(file)
        if now != size:
            size, still = now, loop.time()
    return read(file)


def size_of(file: Path) -> int:
    """Return how much has been written."""
    return file.stat().st_size if file.exists() else 0


def read(file: Path) -> str:
    """Return what has been written."""
    return file.read_text(errors="replace").strip() if file.exists() else ""


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    mask = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def shorten(text: str) -> str:
    """Return the text for the log: the first lines, and how many are left out."""
    lines = text.splitlines()
    rest = len(lines) - LINES
    return "\n".join([*lines[:LINES], *([f"... {rest} more lines"] if rest > 0 else [])])
