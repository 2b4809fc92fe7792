"""A supervisor for containers whose programs import TensorFlow: it has done so, and forks them.

    SUPERVISOR = command(PIDS)  # of a module with end-to-end tests

A fork shows the environment of the supervisor, so it writes its process ID to a file named after its pod.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import NoReturn

from elasticjob.api.rpc.environment import POD_NAME
from elasticjob.devcluster.node.container import supervisor
from elasticjob.trainer.agent.processes import warm

ROOT = Path(__file__).parents[3]
PROGRAM = "import sys; sys.path.insert(0, {root!r}); from tests.kit.training.forking import main; main()"
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
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text file
    _run(argv[1:])


def _run(argv: list[str]) -> NoReturn:
    code = 0
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[:0] = argv, [str(Path(argv[0]).parent)]
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def main() -> None:
    """Import TensorFlow, then start containers."""
    pids, door = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    pids.mkdir(parents=True, exist_ok=True)
    warm.load(MODULES)
    supervisor.main(door, partial(become, pids))
    os._exit(0)
