"""Parent-death signals and subreapers: no process of a job outlives its agent, and none gets lost.

Linux sends the signal when the *thread* that made the process ends, so parents start processes from their
main thread. `python -m elasticjob.trainer.agent.processes.tether PARENT COMMAND …` execs COMMAND, tethered.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36


def tether(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel signal this process when `parent`, its parent, ends; exits if it already has."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def adopt() -> None:
    """Be the parent of all descendants whose own parent ends, in whatever group or session they are."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def main() -> None:
    """Exec the command."""
    parent, *command = sys.argv[1:]
    tether(int(parent))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
