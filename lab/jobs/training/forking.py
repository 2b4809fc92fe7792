"""A supervisor for containers whose programs import TensorFlow: it has done so, and forks them.

    SUPERVISOR = command(PIDS)  # of a module with end-to-end tests

A fork shows the environment of the supervisor, so it writes its process ID to a file named after its pod.
It ends as Python does, with all that can go wrong there, and not by os._exit.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path

from elasticjob.api.rpc.environment import POD_NAME
from elasticjob.devcluster.node.container import supervisor
from elasticjob.trainer.agent.processes import fresh, warm
from lab.paths import ROOT

PROGRAM = "import sys; sys.path.insert(0, {root!r}); from lab.jobs.training.forking import main; main()"
MODULES = ("tensorflow", "elasticjob.trainer.tensorflow.servers", "elasticjob.trainer.tensorflow.estimator")


def command(pids: Path) -> tuple[str, ...]:
    """Return the command of a supervisor that writes process IDs to a folder."""
    return (sys.executable, "-P", "-c", PROGRAM.format(root=str(ROOT)), str(pids))


def process_of(pids: Path, pod: str) -> int:
    """Return the process ID of a pod's program."""
    return int((pids / pod).read_text())


def become(pids: Path, argv: list[str], env: dict[str, str]) -> None:
    """Run a program of Python here; others are executed."""
    if Path(argv[0]).name != "python":
        return
    (pids / env[POD_NAME]).write_text(str(os.getpid()))
    os.closerange(3, 1_024)  # as exec would: the keeper waits for that
    os.environ.clear()
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, name, *arguments = argv[1:] if argv[1] == "-m" else ("", *argv[1:])
    fresh.work(name, tuple(arguments), module=bool(module))
    sys.exit()  # to the end of this process's main module: Python ends as it would


def main() -> None:
    """Import TensorFlow, then start containers."""
    pids, door = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    pids.mkdir(parents=True, exist_ok=True)
    warm.load(MODULES)
    supervisor.main(door, partial(become, pids))
    os._exit(0)
