"""The parent of a worker: a process that outlives it, and ends what it leaves behind.

It adopts: whatever the worker starts, in whatever group or session, becomes its child once its own parent has
ended. So nothing is left of a worker when this process has no child.

1. A worker that ends with 0 may leave processes behind: they have `grace` seconds, and the agent names them.
   So it is with a wrapper that a polite signal ended: what it wraps has got it, too, and may be saving.
2. After any other end, when the agent asks (END), and when it is gone, all are killed at once. Processes that
   only remove what the others leave in shared memory have a moment for it.
3. The worker's end is told when nothing is left of it. Then the parent can have another worker.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

END: Final = signal.SIGHUP
"""Asks a parent to end its worker's whole tree."""
SIGNALS: Final = frozenset({signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM})
"""The signals that a parent waits for: blocked in it, and in whoever forks it until that is done."""
POLITE: Final = frozenset(
    -getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM")
)
"""Exit codes after the signals by which a program is asked to end, or to save."""
QUIET: Final = 1.0  # seconds in which helpers of multiprocessing end by themselves, and are not named
GOODBYE: Final = 2.0  # seconds between the SIGTERM and the SIGKILL of what a worker has left behind
TRACKERS: Final = ("resource_tracker", "torch_shm_manager")
"""Words in the command lines of processes that remove named memory and semaphores when all users are gone."""
STUCK: Final = 10.0  # seconds after which nobody waits for a killed process: the kernel does not let it go


def attend(
    worker: int, grace: float, left: Callable[[list[str]], None], *, wrapper: bool
) -> tuple[int, bool]:
    """Return the worker's exit code (negative: by that signal), and whether nothing of it is left.

    `left` gets what it has left behind at its end.
    """
    code: int | None = None
    killing = ending = telling = float("inf")  # when what is left gets SIGKILL, and SIGTERM, and is named
    while True:
        ended, alone = reap()
        now = time.monotonic()
        if worker in ended:
            code = ended[worker]
            if code == 0 or (wrapper and code in POLITE):
                ending, killing, telling = now + grace, now + grace + GOODBYE, now + QUIET
            else:
                killing = now
        if not alone and telling <= now < killing:
            left([describe(pid) for pid in children()])
            telling = float("inf")
        if alone or now >= killing + STUCK:
            return (-signal.SIGKILL if code is None else code), alone
        if now >= min(ending, killing):
            for pid in children():
                if killing <= now < killing + GOODBYE and any(word in describe(pid) for word in TRACKERS):
                    continue
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if now >= killing else signal.SIGTERM)
            ending = killing
        patience = 1.0 if now >= killing else min(ending, killing, telling, now + 3600.0) - now
        woken = signal.sigtimedwait(SIGNALS, patience)
        if woken is not None and woken.si_signo != signal.SIGCHLD:
            killing = min(killing, time.monotonic())


def reap() -> tuple[dict[int, int], bool]:
    """Return the exit codes of the children that ended, and whether none is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        ended[pid] = os.waitstatus_to_exitcode(status)


def children() -> list[int]:
    """Return the children of this process."""
    with suppress(OSError):  # a kernel without CONFIG_PROC_CHILDREN
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    me, found = str(os.getpid()), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[1] == me:
                found.append(int(folder.name))
    return found


def describe(pid: int) -> str:
    """Return a process as a log line names it."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{pid} ({words.strip()[:200] or Path(f'/proc/{pid}/comm').read_text().strip()})"
    return str(pid)
