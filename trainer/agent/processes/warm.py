"""The warm process: imports torch once, then forks a worker in milliseconds each time the agent asks.

It is single-threaded (a fork keeps only the thread that calls it) and does nothing else. If an import has
started threads that stay, it begins again without any: in a fork TensorFlow would hang. Then, and where the
agent wants it COLD, each worker is a new interpreter, or another program. The agent sends `Prepare`, answered
by `Warm`, and `Fork` with the worker's stdout, stderr, channel and page (`pulse.py`) attached, answered by
the worker's parent (`parent.py`), another fork: `Forked`, perhaps `Left`, and when nothing of the worker is
left, `Reaped`. The process dies with the agent, and its forks with all that they started die with it.

An order travels in a file in memory, of which the line carries the descriptor: a message on the line is
limited to some 200 KB, an environment is not.

Where many agents run on one machine (devcluster, tests), one process imports torch for all of them (`load`)
and `beside` forks each agent's warm process from it.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

import msgspec

from elasticjob.trainer.agent.processes import fresh, parent
from elasticjob.trainer.agent.processes.tether import adopt, tether
from elasticjob.trainer.link import pulse, stacks

STREAMS: Final = 4  # stdout, stderr, channel, page
TRIES: Final = 20
PAUSE: Final = 0.005  # seconds
COLD: Final = "cold"
FREE, TAKEN = b"free", b"taken"
"""Words of a parent to the nursery: its worker has ended, and it has the next order."""
TAKING: Final = 10.0  # seconds after which a parent is taken for one that was stopped
ROOM: Final = 4096
BESIDE: Final = "ELASTICJOB_WARM"
"""Names to an agent the warm process that was forked for it: `FD:PID`, our end of its line and its pid."""
DECIDED_AT_IMPORT: Final = ("PYTHON", "LD_", "OMP_", "MKL_", "CUDA_", "TORCH", "TF_", "GRPC_", "JAX_", "XLA_")
"""Variables that Python and frameworks read only once: a fork cannot be given other values."""
COMPUTED: Final = frozenset({"TORCHINDUCTOR_CACHE_DIR"})
"""Variables that torch sets when it needs them: a script may set them before."""
READ_LATER: Final = frozenset({"TF_CONFIG"})
"""Variables that begin so, and are read by scripts."""


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Start a worker; what it leaves behind when it ends with 0 may go on for `grace` seconds."""

    slot: int
    script: str
    arguments: tuple[str, ...]
    module: bool
    environment: dict[str, str]
    channel_variable: str
    python: bool = True
    grace: float = 0.0

    @property
    def command(self) -> list[str]:
        """The command line in a new interpreter, or that of a program."""
        python = [sys.executable, "-u", *(["-m"] if self.module else [])] if self.python else []
        return [*python, self.script, *self.arguments]


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Import these modules, for a script that imports those in `folder` before installed ones."""

    modules: tuple[str, ...]
    folder: str = ""


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Everything is imported; `missing` could not be."""

    missing: tuple[str, ...] = ()


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """A worker runs, and its parent."""

    slot: int
    pid: int
    parent: int


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A worker has ended well, and these processes of its are still there."""

    slot: int
    processes: tuple[str, ...]


class Reaped(msgspec.Struct, frozen=True, tag="reaped"):
    """Nothing is left of a worker; `code` is negative if a signal ended it."""

    pid: int
    code: int


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """The parent of a worker was killed, and the worker with it."""

    parent: int


News = Warm | Forked | Left | Reaped | Lost
decode_news = msgspec.json.Decoder(News).decode
decode_order = msgspec.json.Decoder(Fork | Prepare).decode


def command_of(fd: int, agent: int, *, cold: bool) -> list[str]:
    """Return the command of a warm process, without the present folder among the places of modules."""
    begin = f"import sys; sys.path[:1] == [''] and sys.path.pop(0); from {__name__} import main; main()"
    room = " " * ROOM  # for the command lines of workers
    return [sys.executable, "-u", "-c", begin, str(agent), str(fd), *([COLD] if cold else [room])]


def main() -> None:
    """Be the warm process of the agent that started this program."""
    agent, fd = map(int, sys.argv[1:3])
    tether(agent)
    attend(socket.socket(fileno=fd), cold=COLD in sys.argv[3:])


def attend(agent: socket.socket, run: Callable[[Fork], None] | None = None, *, cold: bool = False) -> None:
    """Serve until the agent is gone; in a fork, be the worker: `run` its order, a script by default."""
    end = fresh.QuickEnd()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    agent.set_inheritable(False)
    order = serve(agent, scripts=run is None, cold=cold)
    if order is None:
        os._exit(0)
    with end:
        (run or work)(order)


def work(order: Fork) -> None:
    """Run the script of an order."""
    fresh.work(order.script, order.arguments, module=order.module)


def beside(
    environment: MutableMapping[str, str], run: Callable[[Fork], None] | None = None
) -> Callable[[], None] | None:
    """Fork a warm process for an agent that this process is about to become.

    Returns None in this process, with the variable in `environment` by which the agent finds it; in the fork,
    what it has to call when it has left all frames of its parent. Forks nothing if `environment` differs from
    this process's own in what was decided when torch was imported. With `run` its workers run that instead of
    scripts, and what it needs stays open.
    """
    if import_variables(environment) != import_variables(os.environ):
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


def import_variables(environment: MutableMapping[str, str]) -> dict[str, str]:
    """Return the variables that count when a process imports a framework."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(DECIDED_AT_IMPORT) and name not in READ_LATER
    }


def load(modules: Iterable[str] = ("torch",)) -> tuple[str, ...]:
    """Import modules so that forks share them; return those that cannot be imported."""
    before = dict(os.environ)
    missing = tuple(name for name in modules if not preload(name))
    found = {name: text for name, text in os.environ.items() if before.get(name) != text}
    _set_by_imports.update({name: text for name, text in found.items() if name not in COMPUTED})
    gc.collect()
    gc.freeze()
    return missing


_set_by_imports: dict[str, str] = {}
"""Variables that packages set when they were imported, as they would in the worker."""


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
    for fd in passed:
        os.set_inheritable(fd, False)
    with open(order, "rb") as file:
        file.seek(0)  # the position is the sender's
        return decode_order(file.read()), streams


def serve(agent: socket.socket, *, scripts: bool = True, cold: bool = False) -> Fork | None:
    """Fork for the agent. Returns None when the agent is gone, an order in a worker that was forked.

    `scripts` says that a new interpreter could do what a fork does, `cold` that one does.
    """
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    adopt()
    me, parents, lines = os.getpid(), set[int](), dict[int, socket.socket]()
    poll = select.poll()
    poll.register(agent, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if woken in ready:
            os.read(woken, 4096)
            bury(agent, parents)
        if agent.fileno() not in ready:
            continue
        order, streams = receive(agent)
        if order is None:
            return None
        if isinstance(order, Prepare):
            before = kept_threads()
            missing = load(order.modules)
            agent.send(msgspec.json.encode(Warm(missing)))
            hidden = hidden_by(order.folder) if scripts else ""
            if hidden:
                begin_again_cold(agent, f"{hidden} in {order.folder} is another than the installed one")
            if scripts and kept_threads() > before:
                begin_again_cold(agent, "an import has started threads")
            continue
        if not passed_on(order, streams, lines.get(order.slot)):
            line, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            signal.pthread_sigmask(signal.SIG_BLOCK, parent.SIGNALS)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for end in (woken, waker):
                    os.close(end)
                for each in (line, *lines.values()):
                    each.close()
                order, streams, holder = hold(order, streams, agent, its_end, me)
                if cold:
                    become_program(order, streams, holder)
                become_worker(order, streams, holder)
                return order
            signal.pthread_sigmask(signal.SIG_UNBLOCK, parent.SIGNALS)
            parents.add(pid)
            if order.slot in lines:
                lines.pop(order.slot).close()
            lines[order.slot] = line
            line.setblocking(False)
            its_end.close()
        for stream in streams:
            os.close(stream)


def passed_on(order: Fork, streams: Sequence[int], line: socket.socket | None) -> bool:
    """Give an order to the parent in that slot if its worker has ended, and it takes it: a fork less.

    Workers start in turn: one that comes before that of rank 0 waits half a second for its store.
    """
    try:
        if line is None or line.recv(ROOM) != FREE:
            return False
        line.settimeout(TAKING)
        send(line, order, streams)
        return line.recv(ROOM) == TAKEN
    except OSError:
        return False
    finally:
        if line is not None:
            line.setblocking(False)


def next_order(line: socket.socket) -> tuple[Fork | None, list[int]]:
    """Wait for the order of the next worker; None where the nursery wants no more of this parent."""
    with suppress(OSError):
        order, streams = receive(line)
        if isinstance(order, Fork):
            return order, streams
    return None, []


def hold(
    order: Fork, streams: list[int], agent: socket.socket, line: socket.socket, me: int
) -> tuple[Fork, list[int], int]:
    """Be the parent of one worker after the other in a slot; return, in each, its order, streams, our pid.

    The agent asks for no end of a worker once it has ordered the next one in that slot.
    """

    def tell(news: News) -> None:
        with suppress(OSError):  # the agent is gone
            agent.send(msgspec.json.encode(news))

    tether(me, parent.END)
    adopt()
    pid, slot, alone, is_next = os.getpid(), order.slot, True, False
    while alone:
        while signal.sigtimedwait(parent.SIGNALS, 0):
            pass  # for the worker before
        if os.getppid() != me:
            break
        worker = os.fork()
        if worker == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, parent.SIGNALS)
            agent.close()
            line.close()
            return order, streams, pid
        for stream in streams:
            os.close(stream)
        try:
            if is_next:
                line.send(TAKEN)
        except OSError:  # it has given the order to another one
            os.kill(worker, signal.SIGKILL)
            break
        tell(Forked(slot, worker, pid))
        code, alone = parent.attend(
            worker, order.grace, lambda left: tell(Left(slot, tuple(left))), wrapper=not order.python
        )
        if alone:
            with suppress(OSError):  # it wants no more of this parent
                line.send(FREE)
        tell(Reaped(worker, code))
        following, streams = next_order(line) if alone else (None, [])
        if following is None:
            break
        order, is_next = following, True
    os._exit(0)


def bury(agent: socket.socket, parents: set[int]) -> None:
    """Reap the parents of workers; kill the orphans that one that was killed has left to this process."""
    lost: list[int] = []
    for _ in range(TRIES):
        ended, _ = parent.reap()
        lost += [pid for pid in ended.keys() & parents if ended[pid]]
        parents -= ended.keys()
        orphans = set(parent.children()) - parents if lost else ()
        if not orphans:
            break
        for orphan in orphans:
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(PAUSE)  # the kernel passes on the children of those
    for pid in lost:
        agent.send(msgspec.json.encode(Lost(pid)))


def hidden_by(folder: str) -> str:
    """Return a module that was imported here and that a script in `folder` has of its own, empty if none."""
    with suppress(OSError):
        for entry in os.scandir(folder) if folder else ():
            name = entry.name.partition(".")[0]
            path = os.path.join(entry.path, "__init__.py") if entry.is_dir() else entry.path
            ours = getattr(sys.modules.get(name), "__file__", None)
            if ours and path.endswith(".py") and os.path.exists(path) and not os.path.samefile(path, ours):
                return name
    return ""


def begin_again_cold(agent: socket.socket, why: str) -> None:
    """Replace this process, whose forks would not be as fresh ones, by one that has imported nothing."""
    print(f"elasticjob: {why}, so that workers start cold", file=sys.stderr, flush=True)
    agent.set_inheritable(True)
    command = command_of(agent.fileno(), os.getppid(), cold=True)
    os.execve(command[0], command, os.environ)


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


def become_worker(order: Fork, streams: Sequence[int], holder: int) -> None:
    """In a fork: a session, streams and an environment of its own, as if just started."""
    begin_session(streams, holder)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    fresh.reopen()
    os.environ.clear()
    os.environ.update({**_set_by_imports, **environment_of(order, streams)})
    stacks.register(os.environ)
    fresh.renew(os.environ)
    fresh.show(order.command)


def become_program(order: Fork, streams: Sequence[int], holder: int) -> NoReturn:
    """In a fork: a new interpreter, or another program."""
    begin_session(streams, holder)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    _, _, *ends = streams
    for end in ends:
        os.set_inheritable(end, True)
    command = order.command
    try:
        os.execvpe(command[0], command, environment_of(order, streams))
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode())
    os._exit(1)


def begin_session(streams: Sequence[int], holder: int) -> None:
    """Have a session, as under torchrun: a terminal's signals are the agent's to pass on."""
    tether(holder)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream, standard in zip(streams[:2], (1, 2), strict=True):
        os.dup2(stream, standard)
        os.close(stream)


def environment_of(order: Fork, streams: Sequence[int]) -> dict[str, str]:
    """Return the worker's environment, with the descriptors that it finds there."""
    _, _, channel, *page = streams
    return {
        **order.environment,
        order.channel_variable: str(channel),
        **({pulse.FD: str(page[0])} if page else {}),
    }


if __name__ == "__main__":
    main()
