"""The warm process: imports torch once, then forks a worker in milliseconds each time the agent asks.

It is single-threaded (a fork keeps only the thread that calls it) and does nothing else. If an import has
started threads that stay, it starts new interpreters instead: in a fork TensorFlow would hang. The agent
sends `Prepare`, answered by `Warm`, and `Fork` with the worker's stdout, stderr, channel and page
(`pulse.py`) attached, answered by `Forked` and later by `Reaped`. The process dies with the agent, and its
forks die with it.

An order travels in a file in memory, of which the line carries the descriptor: a message on the line is
limited to some 200 KB, an environment is not.

Where many agents run on one machine (devcluster, tests), one process imports torch for all of them (`load`)
and `beside` forks each agent's warm process from it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from io import FileIO, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

import msgspec

from elasticjob.trainer.agent.processes.tether import tether
from elasticjob.trainer.link import pulse, stacks

STREAMS: Final = 4  # stdout, stderr, channel, page
TRIES: Final = 20
PAUSE: Final = 0.005  # seconds
BESIDE: Final = "ELASTICJOB_WARM"
"""Names to an agent the warm process that was forked for it: `FD:PID`, our end of its line and its pid."""
DECIDED_AT_IMPORT: Final = ("PYTHON", "LD_", "OMP_", "MKL_", "CUDA_", "TORCH", "TF_", "GRPC_", "JAX_", "XLA_")
"""Variables that Python and frameworks read only once: a fork cannot be given other values."""
READ_LATER: Final = frozenset({"TF_CONFIG"})
"""Variables that begin so, and are read by scripts."""


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Start a worker."""

    slot: int
    script: str
    arguments: tuple[str, ...]
    module: bool
    environment: dict[str, str]
    channel_variable: str


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Import these modules."""

    modules: tuple[str, ...]


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Everything is imported; `missing` could not be."""

    missing: tuple[str, ...] = ()


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A worker runs."""

    slot: int
    pid: int


class Reaped(msgspec.Struct, frozen=True, tag="reaped"):
    """A worker ended; `code` is negative if a signal did it."""

    pid: int
    code: int


News = Warm | Forked | Reaped
decode_news = msgspec.json.Decoder(News).decode
decode_order = msgspec.json.Decoder(Fork | Prepare).decode


def main() -> None:
    """Be the warm process of the agent that started this program."""
    agent, fd = map(int, sys.argv[1:])
    tether(agent)
    attend(socket.socket(fileno=fd))


def attend(agent: socket.socket, run: Callable[[Fork], None] | None = None) -> None:
    """Serve until the agent is gone; in a fork, be the worker: `run` its order, a script by default."""
    end = QuickEnd()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    agent.set_inheritable(False)
    order = serve(agent, scripts=run is None)
    if order is None:
        os._exit(0)
    with end:
        (run or work)(order)


def beside(
    environment: MutableMapping[str, str], run: Callable[[Fork], None] | None = None
) -> Callable[[], None] | None:
    """Fork a warm process for an agent that this process is about to become.

    Returns None in this process, with the variable in `environment` by which the agent finds it; in the fork,
    what it has to call when it has left all frames of its parent. Forks nothing if `environment` differs from
    this process's own in what was decided when torch was imported. With `run` its workers run that instead of
    scripts, and what it needs stays open.
    """
    if decided(environment) != decided(os.environ):
        return None
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        tether(agent)
        os.setsid()
        line = theirs.detach()
        if run is None:
            os.closerange(3, line)
            os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))
        else:
            ours.close()
        return partial(attend, socket.socket(fileno=line), run)
    theirs.close()
    os.set_inheritable(ours.fileno(), True)
    environment[BESIDE] = f"{ours.detach()}:{pid}"
    return None


def decided(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the variables that count when a process imports a framework."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(DECIDED_AT_IMPORT) and name not in READ_LATER
    }


def load(modules: Iterable[str] = ("torch",)) -> tuple[str, ...]:
    """Import modules so that forks share them; return those that cannot be imported."""
    missing = tuple(name for name in modules if not preload(name))
    gc.collect()
    gc.freeze()
    return missing


class QuickEnd:
    """Ends a worker without taking the interpreter apart, which takes torch seconds.

    Made first, so its exit handler is the last: threads are joined, all other handlers have run, and nothing
    is left but memory. A child that the script forks by itself ends as it likes.
    """

    def __init__(self) -> None:
        self._worker = 0
        self._code = 0
        atexit.register(self._end)

    def __enter__(self) -> None:
        self._worker = os.getpid()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remember the code with which Python would end."""
        match error:
            case None | SystemExit(code=None):
                self._code = 0
            case SystemExit(code=int(code)):
                self._code = code & 0xFF
            case _:
                self._code = 1

    def _end(self) -> None:
        if os.getpid() == self._worker:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self._code)


def preload(name: str) -> bool:
    """Import `name`; False if that fails, in any way: the script that needs it will say why."""
    try:
        pkgutil.resolve_name(name)  # a name in a module, too: some packages import their modules so
    except Exception:  # a package may raise anything: OSError for a missing library, and so on
        return False
    if name == "torch":
        warm_up()
    return True


def warm_up() -> None:
    """Import what torch leaves for later: the compiler, a second in the first DDP."""
    torch = importlib.import_module("torch")
    importlib.import_module("torch.nn.parallel")
    torch.compiler.disable(lambda: None)


def send(line: socket.socket, order: Fork | Prepare, streams: Sequence[int] = ()) -> None:
    """Send an order, with the worker's streams; BlockingIOError if the line is full and does not block."""
    with open(os.memfd_create("order"), "wb+", buffering=0) as file:
        file.write(msgspec.json.encode(order))
        socket.send_fds(line, [b"order"], [file.fileno(), *streams])


def receive(line: socket.socket) -> tuple[Fork | Prepare | None, list[int]]:
    """Return the next order and its streams; None at the end of the line."""
    received, passed, _, _ = socket.recv_fds(line, 16, 1 + STREAMS)
    if not received:
        return None, []
    order, *streams = passed
    with open(order, "rb") as file:
        file.seek(0)  # the position is the sender's
        return decode_order(file.read()), streams


def serve(agent: socket.socket, *, scripts: bool = True) -> Fork | None:
    """Fork and reap for the agent. Returns None when the agent is gone, an order in a fork.

    `scripts` says that a new interpreter could do what a fork does.
    """
    cold = False
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    me = os.getpid()
    poll = select.poll()
    poll.register(agent, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if woken in ready:
            os.read(woken, 4096)
            reap(agent)
        if agent.fileno() not in ready:
            continue
        order, streams = receive(agent)
        if order is None:
            return None
        if isinstance(order, Prepare):
            before = kept_threads()
            missing = load(order.modules)
            cold = scripts and kept_threads() > before
            if cold:
                said = "elasticjob: an import has started threads, so that workers start cold"
                print(said, file=sys.stderr, flush=True)
            agent.send(msgspec.json.encode(Warm(missing)))
            continue
        pid = start_cold(order, streams, me) if cold else os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for end in (woken, waker):
                os.close(end)
            agent.close()
            become_worker(order, streams, me)
            return order
        for stream in streams:
            os.close(stream)
        with suppress(OSError):  # the fork does the same: whoever comes first
            os.setpgid(pid, pid)
        agent.send(msgspec.json.encode(Forked(order.slot, pid)))


def kept_threads() -> int:
    """Return how many threads this process has that a fork does not end, as it ends those of OpenBLAS."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    found = []
    for _ in range(TRIES):
        found.append(len(os.listdir("/proc/self/task")))
        if found[-1] == 1:
            break
        time.sleep(PAUSE)  # the kernel lists a thread for a moment after its end
    return min(found)


def start_cold(order: Fork, streams: Sequence[int], me: int) -> int:
    """Start a worker in a new interpreter, tethered to this process; return its pid."""
    out, err, channel, *page = streams
    for stream in (channel, *page):
        os.set_inheritable(stream, True)
    ends = {order.channel_variable: str(channel), **({pulse.FD: str(page[0])} if page else {})}
    return os.posix_spawn(
        sys.executable,
        [
            sys.executable,
            "-m",
            tether.__module__,
            str(me),
            *command(order.script, order.arguments, order.module),
        ],
        {**order.environment, **ends},
        file_actions=[(os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, err, 2)],
        setpgroup=0,
        setsigdef=(signal.SIGINT, signal.SIGCHLD),
    )


def command(script: str, arguments: Iterable[str], module: bool) -> list[str]:
    """Return the command line of a script in a new interpreter."""
    return [sys.executable, "-u", *(["-m"] if module else []), script, *arguments]


def reap(agent: socket.socket) -> None:
    """Tell the agent of every child that ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        agent.send(msgspec.json.encode(Reaped(pid, os.waitstatus_to_exitcode(status))))


def become_worker(order: Fork, streams: Sequence[int], parent: int) -> None:
    """In a fork: a process group, streams and an environment of its own, as if just started."""
    os.setpgid(0, 0)
    tether(parent)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out, err, channel, *page = streams
    os.dup2(out, 1)
    os.dup2(err, 2)
    for stream in (out, err):
        os.close(stream)
    for file in (sys.stdout, sys.stderr):
        file.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # text files at this point
    for name, fd in (("stdout", 1), ("stderr", 2)):
        output = unbuffered(fd)
        setattr(sys, name, output)
        setattr(sys, f"__{name}__", output)
    os.environ.clear()
    os.environ.update(order.environment, **{order.channel_variable: str(channel)})
    if page:
        os.environ[pulse.FD] = str(page[0])
    stacks.register(os.environ)
    renew(os.environ)


def renew(environment: Mapping[str, str]) -> None:
    """Give a fork what packages took once, when the warm process imported them: random numbers and a rank."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    lightning = sys.modules.get("lightning_utilities.core.rank_zero")
    if lightning is not None:  # else all workers log and print as rank 0 until they are connected
        lightning.rank_zero_only.rank = int(environment.get("RANK", "0"))


def unbuffered(fd: int) -> TextIO:
    """Return a standard stream as `python -u` has it."""
    return TextIOWrapper(FileIO(fd, "wb", closefd=False), "utf-8", "backslashreplace", write_through=True)


def work(order: Fork) -> None:
    """Run the script as `python script …` or `python -m module …` would."""
    sys.argv = [order.script, *order.arguments]
    sys.excepthook = report
    if order.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(order.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(order.script).resolve().parent))
        runpy.run_path(order.script, run_name="__main__")


def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error without the frames above the script's own."""
    while trace is not None and trace.tb_frame.f_code is not work.__code__:
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename in OURS:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)
    record("".join(traceback.format_exception_only(kind, error)).strip())


def record(message: str) -> None:
    """Write the error where torch's @record writes it, unless it did: a terminal keeps no last line."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    with suppress(OSError):
        if path and not Path(path).exists():
            Path(path).write_text(json.dumps({"message": message}))


OURS: Final = frozenset({__file__, runpy.__file__, "<frozen runpy>"})

if __name__ == "__main__":
    main()
