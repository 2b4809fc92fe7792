"""`elasticjob.launch`: a function in elastic workers, for notebooks, sweeps and tests.

    def train(width): ...                              # as a script would; what it returns comes back
    scores = [launch(train, width, nproc=2) for width in (64, 128)]

The workers are forks of this process, so the function and everything it refers to need not be pickled:

    this process ─ fork ─ agent (`elasticjob run`) ─ fork before its exec ─ warm process ─ fork ─ workers

Each call starts an agent for each node and waits for them; nothing of it is left afterwards.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Never

from elasticjob.api.rpc import environment as names
from elasticjob.trainer.agent.processes import fresh, warm
from elasticjob.trainer.agent.processes.tether import tether
from elasticjob.trainer.launched import Running, output
from elasticjob.trainer.link.channel import FD
from elasticjob.trainer.link.sockets import bound
from elasticjob.trainer.references import uses_elastic

MODULE: Final = "elasticjob.trainer.launch"
OTHERS: Final = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}
    | {names.MASTER, "DLROVER_MASTER_ADDR", names.JOB, names.NODE, names.ROLE, names.INDEX}
    | {names.TOKEN_FILE, names.POD_NAME, names.POD_IP, names.TERMINATION_LOG}
)
"""Variables by which this process may be a part of another job."""


RESULT: Final = "result.json"


class LaunchFailed(RuntimeError):
    """A function that was launched failed: the reason, and the last lines of the workers."""

    def __init__(self, reason: str, lines: Sequence[str]) -> None:
        super().__init__("\n".join([reason, "the last lines of the workers:", *lines]) if lines else reason)
        self.reason = reason


def launch(
    fn: Callable[..., Any],
    *args: Any,
    nproc: int = 2,
    nodes: int | str = 1,
    recovery: str = "auto",
    flags: Sequence[str] = (),
    kwargs: Mapping[str, Any] | None = None,
    **other: Never,
) -> Any:
    """Run `fn(*args, **kwargs)` in `nproc` workers on each of `nodes` nodes, all here.

    Return what rank 0 returned: numbers, strings, lists and dicts, which travel as JSON. For anything else,
    such as a tensor, a warning says so and None comes back: let `fn` return float(loss).

    Workers that fail are started again, as by `elasticjob run`, whose `flags` may be given, such as
    ("--max-restarts", "0"). `nodes` may be "1:3".
    `recovery` is "in-process" for a function that makes an `Elastic`, "restart" for others; "auto" looks for
    that in its code. A worker computes with one thread, as with torchrun; see torch.set_num_threads.

    Raises LaunchFailed with the last lines of the workers, RuntimeError if this process cannot be forked.
    """
    for name in other:
        raise TypeError(f"launch has no argument {name!r}: fn's go into kwargs={{{name!r}: …}}")
    check(nproc)
    named = dict(kwargs or {})
    if "torch" in sys.modules:
        warm.warm_up()  # once here, not in each warm process
    most = most_of(nodes)
    if recovery == "auto":
        recovery = "in-process" if uses_elastic(fn, (*args, *named.values())) else "restart"
    with tempfile.TemporaryDirectory(prefix="elasticjob-launch-") as made, output() as (reading, writing):
        folder = Path(made)
        given = [*meeting(nodes, most), "--nproc-per-node", str(nproc), "--recovery", recovery, *flags]
        command = [sys.executable, "-m", "elasticjob.cli", "run", *given, "-m", MODULE]
        job = Running(reading, folder)
        try:
            for node in range(most):
                work = Work(fn, args, named, folder / RESULT)
                job.agents.append(start(command, work, folder / f"end-{node}", writing))
            os.close(writing)
            job.wait()
        except BaseException as error:
            job.stop(type(error).__name__)
            raise
        if reason := job.reason((folder / RESULT).exists()):
            raise LaunchFailed(reason, [*job.tail])
        return result(folder / RESULT, getattr(fn, "__name__", "the function"))


def most_of(nodes: int | str) -> int:
    """Return the largest number of nodes. ValueError if it is none."""
    text = str(nodes).rpartition(":")[2]
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"nodes is {nodes!r}: give 1 or more, or MIN:MAX")
    return int(text)


def check(nproc: int) -> None:
    """Raise RuntimeError if this process cannot be forked for workers, and say what to do."""
    if nproc < 1:
        raise ValueError(f"nproc is {nproc}: give 1 or more")
    if FD in os.environ:
        raise RuntimeError("launch was called in a worker: call it in the process that starts the workers")
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "CUDA is in use in this process, and workers forked from it could not use it: restart the kernel "
            "(or the program), and make models and tensors on the GPU inside of the function that is launched"
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise RuntimeError(
            "this process is in a process group: call torch.distributed.destroy_process_group() before launch"
        )


def meeting(nodes: int | str, most: int) -> list[str]:
    """Return the flags by which the agents of a job find each other."""
    if most == 1:
        return ["--standalone"]
    with bound("127.0.0.1") as free:
        port = free.getsockname()[1]
    secret = secrets.token_hex(16)
    return ["--nnodes", str(nodes), "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", secret]


@dataclass(frozen=True)
class Work:
    """The function that a worker runs instead of a script."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Path

    def __call__(self, _: warm.Fork) -> None:
        """Call the function; SystemExit(1) if it fails."""
        try:
            value = self.fn(*self.args, **self.kwargs)
        except Exception as error:
            trace = error.__traceback__.tb_next if error.__traceback__ else None
            traceback.print_exception(type(error), error, trace)
            fresh.record(error)
            raise SystemExit(1) from None
        except SystemExit as end:
            if end.code is not None and not isinstance(end.code, int):
                print(end.code, file=sys.stderr)
            if end.code:
                raise
            value = None
        if os.environ.get("RANK", os.environ["LOCAL_RANK"]) == "0":
            keep(value, self.result)


def keep(value: Any, path: Path) -> None:
    """Write what rank 0 returned, or what it is if JSON has it not."""
    unfit: list[str] = []

    def refuse(part: Any) -> Any:
        unfit.append(type(part).__name__)
        raise TypeError

    try:
        text = json.dumps({"value": value}, default=refuse)
    except (TypeError, ValueError, RecursionError) as error:
        whole = type(value).__name__
        part = "" if unfit in ([], [whole]) else f" with a {unfit[0]}"
        why = "" if unfit else f" ({error})"
        text = json.dumps({"unfit": f"a {whole}{part}, which is not JSON{why}"})
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def result(path: Path, name: str) -> Any:
    """Return what rank 0 returned from the function `name`; None if there is nothing, or JSON has it not."""
    found = json.loads(path.read_text()) if path.exists() else {}
    if "unfit" in found:
        what = f"{name} returned {found['unfit']}: launch returns None; return float(loss) or the like"
        warnings.warn(what, stacklevel=3)
    return found.get("value")


def start(command: list[str], work: Work, end: Path, writing: int) -> int:
    """Fork an agent, and before it becomes one its warm process; return its pid."""
    launcher = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # of a notebook: whatever it is
            stream.flush()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # the others of my threads stay behind
        pid = os.fork()
    if pid:
        return pid
    try:
        become_agent(command, work, end, writing, launcher)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def become_agent(command: list[str], work: Work, end: Path, writing: int, launcher: int) -> None:
    """In a fork: be the agent. In its fork, the warm process, and in those of that, workers: end at last."""
    gc.freeze()  # what the launcher has not collected yet belongs to threads that are not here
    atexit._clear()  # what a notebook does at its end; multiprocessing does so
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    tether(launcher)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for theirs, standard in ((nothing, 0), (writing, 1), (writing, 2)):
        os.dup2(theirs, standard)
    os.close(writing)
    fresh.reopen()
    environment = {name: value for name, value in os.environ.items() if name not in OTHERS}
    environment[names.TERMINATION_LOG] = str(end)
    serve = warm.beside(environment, work)
    if serve is None:
        os.execve(command[0], command, environment)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    with suppress(SystemExit):
        serve()
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its forks
    atexit._run_exitfuncs()  # the last one is QuickEnd's, which exits


if __name__ == "__main__":
    sys.exit("the process with the launched function has ended: call launch again")
