"""The stacks of a worker's threads: written to its file when the agent sends a signal.

faulthandler's handler is C: it needs neither the training thread nor the interpreter's lock, so that it works
in a worker that hangs in a collective.
"""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Mapping
from typing import Final

FILE: Final = "ELASTICJOB_STACKS_FILE"
SIGNAL: Final = signal.SIGRTMIN + 9
"""A signal that neither scripts nor their launchers use: SIGUSR1 and SIGUSR2 are theirs."""


def register(environment: Mapping[str, str]) -> None:
    """Write the stacks of this process to its file at each SIGNAL from now on."""
    path = environment.get(FILE)
    if not path:
        return
    try:
        file = open(path, "ab", buffering=0)  # noqa: SIM115 (open until the process ends)
    except OSError:
        return  # the agent has ended
    faulthandler.register(SIGNAL, file, all_threads=True)
    _open[path] = file


_open: dict[str, object] = {}
