"""Parent-death signals: no process of a job outlives its agent.

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


def tether(parent: int) -> None:
    """Have the kernel kill this process when `parent`, its parent, ends; exits at once if it already has."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


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
