"""The supervisor of a devcluster's containers, in a process that has imported torch.

An agent that a container starts finds a warm process beside it, forked from this one: its workers train a
moment after their pod has started, instead of after seconds of imports. Without torch there is none.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from elasticjob.devcluster.node.container import supervisor
from elasticjob.trainer.agent.processes import warm
from elasticjob.trainer.agent.script import LIBRARY

COMMAND: Final = (sys.executable, "-P", "-m", __name__)
MODULES: Final = ("torch", LIBRARY, "sklearn.datasets")
"""Modules that training scripts import first; a missing one is skipped."""
AGENT: Final = ("elasticjob", "run")
THREADS: Final = "OMP_NUM_THREADS"


class Aside(BaseException):
    """Raised in a warm process, which has to leave all frames of the supervisor before it goes on."""

    def __init__(self, attend: Callable[[], None]) -> None:
        super().__init__()
        self.attend = attend


def beside_agents(given: Mapping[str, str], argv: list[str], env: dict[str, str]) -> None:
    """Fork a warm process for an agent that this process is about to become; Aside in the fork.

    `given` is what counted when torch was imported here (`warm.decided`).
    """
    threads = env.get(THREADS, "")
    if (Path(argv[0]).name, *argv[1:2]) != AGENT or warm.import_variables(env) | {THREADS: ""} != given:
        return
    os.environ.clear()  # torch has added to it
    os.environ.update(env)
    attend = warm.beside(env)
    if attend is not None:
        if threads.isdecimal():  # it was too early for that variable
            importlib.import_module("torch").set_num_threads(max(1, int(threads)))
        raise Aside(attend)


def main() -> None:
    """Import torch, then start containers; in a warm process, serve its agent."""
    door = socket.socket(fileno=int(sys.argv[1]))
    os.environ["PYTHONUNBUFFERED"] = "1"  # as images have it; warm processes write so in any case
    before = partial(beside_agents, warm.import_variables(os.environ) | {THREADS: ""})
    missing = warm.load(MODULES)
    attend: Callable[[], None] | None = None
    try:
        supervisor.main(door, (lambda argv, env: None) if "torch" in missing else before)
    except Aside as aside:
        attend = aside.attend
    if attend is None:
        os._exit(0)  # taking torch apart takes long, and it prints
    attend()


if __name__ == "__main__":
    main()
