"""The small process between the kubelet and a container: it starts it, writes its log, and reports its end.

Run as a script, alone (`python -I -S supervisor.py FD`), it imports nothing of ours, so that a fork of it is
cheap; another program may call `main`, with something to do in each container before its program starts. The
first process only forks; each fork is the *keeper* of one container and talks to the kubelet over
a socket of its own, one JSON object per line.

- A keeper whose socket ends (the kubelet closed it, or died in whatever way) kills all below it and exits.
- A keeper is the subreaper of all it starts: a descendant in whatever session or group is found and ended.
- When a container's first process ends, its descendants are killed: as with the first of a PID namespace.
- A container dies with its keeper (PR_SET_PDEATHSIG). No process outlives the kubelet, even if SIGKILLed.
- Memory is the sum of the resident sets of all descendants, sampled four times a second. As that counts pages
  shared by forked processes once for each, a sum above the limit is counted again by proportional share (Pss)
  before everything in the container is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SAMPLE_MILLISECONDS = 250
LONGEST_LINE = 16 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")
KEEPER = "ELASTICJOB_KEEPER"
"""Names to a container its keeper: an agent counts the memory of the processes below that one, as we do."""

_libc = ctypes.CDLL(None, use_errno=True)


Before = Callable[[list[str], dict[str, str]], None]
"""Called in a container's first process with its command and environment, which it may change."""


def main(door: socket.socket, before: Before = lambda argv, env: None) -> None:
    """Fork one keeper for each socket that comes through `door`, until its other end is closed.

    Returns when all keepers have ended too.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers need no wait: the kernel reaps them
    while True:
        byte, links, _, _ = socket.recv_fds(door, 1, 1)
        if not byte:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, 0)  # returns once none is left, since none is to be reaped
            return
        if os.fork() == 0:
            door.close()
            keep(socket.socket(fileno=links[0]), before)
            os._exit(0)
        os.close(links[0])


def keep(link: socket.socket, before: Before) -> None:
    """Start the container that the first line of `link` orders, watch it, and report its end."""
    os.set_inheritable(link.fileno(), False)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    lines = Lines(link)
    order = lines.first()
    if order is not None:
        Keeper(link, lines, order).run(before)


class Lines:
    """The JSON objects that arrive on a socket."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.waiting: list[dict[str, Any]] = []
        self.rest = b""
        self.ended = False

    def first(self) -> dict[str, Any] | None:
        while not (self.waiting or self.ended):
            self.receive()
        return self.waiting.pop(0) if self.waiting else None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the objects that were received, after waiting for some if there are none."""
        if not self.waiting:
            self.receive()
        while self.waiting:
            yield self.waiting.pop(0)

    def receive(self) -> None:
        """Wait for some bytes; sets `ended` at the end of the stream."""
        try:
            piece = self.link.recv(65536)
        except ConnectionResetError:
            piece = b""
        self.ended = not piece
        *whole, self.rest = (self.rest + piece).split(b"\n")
        self.waiting += map(json.loads, whole)


class LogFile:
    """The log of a container. Beyond `limit` bytes it is rotated; the earlier part stays in `PATH.old`."""

    def __init__(self, path: str, limit: int) -> None:
        self.path, self.limit = path, limit
        self.open()

    def open(self) -> None:
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self.size = os.fstat(self.fd).st_size

    def write(self, text: bytes) -> None:
        if self.size and self.size + len(text) > self.limit:
            os.close(self.fd)
            os.replace(self.path, self.path + ".old")
            self.open()
        self.size += len(text)
        while text:
            text = text[os.write(self.fd, text) :]


class Log:
    """One stream of the container on its way to the log file, in the format of container runtimes."""

    def __init__(self, name: str, pipe: int, file: LogFile) -> None:
        self.name, self.pipe, self.file = name.encode(), pipe, file
        self.rest = b""
        os.set_blocking(pipe, False)

    def copy(self) -> bool:
        """Copy available output to the log; False at the end of the stream."""
        try:
            piece = os.read(self.pipe, 65536)
        except BlockingIOError:
            return True
        if not piece:
            return False
        *whole, self.rest = (self.rest + piece).split(b"\n")
        self.write(b"F", whole)
        if len(self.rest) >= LONGEST_LINE:
            self.flush()
        return True

    def drain(self) -> None:
        """Copy the remaining output to the log, without waiting for more."""
        while select.select([self.pipe], [], [], 0)[0] and self.copy():
            pass
        self.flush()

    def flush(self) -> None:
        if self.rest:
            self.write(b"P", [self.rest])
            self.rest = b""

    def write(self, tag: bytes, lines: list[bytes]) -> None:
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        head = b"%s.%09dZ %s %s " % (clock.encode(), nanoseconds, self.name, tag)
        self.file.write(b"".join(head + line + b"\n" for line in lines))


class Keeper:
    """One container, from its first process to the report of its end."""

    def __init__(self, link: socket.socket, lines: Lines, order: dict[str, Any]) -> None:
        self.link, self.lines, self.order = link, lines, order
        self.memory: int = order["memory"]
        self.status: int | None = None
        self.oom = False
        file = LogFile(order["log"], order["log_limit"])
        self.pid = 0
        (out, self.out), (err, self.err) = os.pipe(), os.pipe()
        self.logs = {out: Log("stdout", out, file), err: Log("stderr", err, file)}

    def run(self, before: Before) -> None:
        problem = self.start(before)
        if problem:
            self.say({"refused": problem})
            return
        self.say({"started": self.pid})
        self.watch()
        end_all(self)
        for log in self.logs.values():
            log.drain()
        code = os.waitstatus_to_exitcode(self.status or 0)
        self.say({"code": code if code >= 0 else 128 - code, "oom": self.oom})

    def start(self, before: Before) -> str:
        """Fork and exec; the answer is "" or why the program could not be executed."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.wakeup, wake = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        answer, failed = os.pipe()
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            become(self.order, keeper, self.out, self.err, failed, before)
        for fd in (failed, self.out, self.err):
            os.close(fd)
        with os.fdopen(answer, "rb") as pipe:
            return pipe.read().decode()

    def watch(self) -> None:
        """Until the container's first process has ended: copy its output, follow orders, guard its memory."""
        poll = select.poll()
        for fd in (self.link.fileno(), self.wakeup, *self.logs):
            poll.register(fd, select.POLLIN)
        due = 0.0
        if self.lines.waiting:
            self.obey()  # it came with the order to start
        while self.status is None:
            for fd, _ in poll.poll(SAMPLE_MILLISECONDS if self.memory else None):
                if fd == self.link.fileno():
                    self.obey()
                elif fd == self.wakeup:
                    os.read(fd, 4096)
                elif not self.logs[fd].copy():
                    poll.unregister(fd)
            if self.memory and time.monotonic() >= due:
                due = time.monotonic() + SAMPLE_MILLISECONDS / 1000
                self.guard()
            reap(self)

    def obey(self) -> None:
        for order in self.lines.read():
            if "signal" in order:
                send(self.pid, order["signal"])
            if "memory" in order:
                self.limit(order["memory"])
            if order.get("kill"):
                kill_all()
        if self.lines.ended:
            end_all(self)
            os._exit(0)

    def limit(self, memory: int) -> None:
        """Take a new limit, unless the container uses more than that at present."""
        fits = not memory or usage(memory) <= memory
        if fits:
            self.memory = memory
        self.say({"limited": fits})

    def guard(self) -> None:
        if usage(self.memory) > self.memory:
            self.oom = True
            kill_all()

    def say(self, message: dict[str, Any]) -> None:
        try:
            self.link.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            end_all(self)
            os._exit(0)


def become(order: dict[str, Any], keeper: int, out: int, err: int, failed: int, before: Before) -> None:
    """In the forked child: turn into the container's program. Never returns, but for what `before` raises."""
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(137)
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        argv, env = order["argv"], order["env"] | {KEEPER: str(keeper)}
        os.chdir(order["cwd"])
        before(argv, env)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(failed, explain(order, error).encode())
    os._exit(128)


def explain(order: dict[str, Any], error: OSError) -> str:
    program, folder = order["argv"][0], order["cwd"]
    if not os.path.isdir(folder):
        return f'the working directory "{folder}" does not exist on this machine'
    if isinstance(error, FileNotFoundError) and "/" not in program:
        return f'exec: "{program}": executable file not found in $PATH'
    return f'exec: "{program}": {error.strerror}'


def reap(keeper: Keeper) -> bool:
    """Collect ended children without waiting; False when no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == keeper.pid:
            keeper.status = status


def end_all(keeper: Keeper) -> None:
    """Kill all descendants and wait until they are gone."""
    while reap(keeper):
        kill_all()
        time.sleep(0.002)


def kill_all() -> None:
    for pid in tree(os.getpid()):
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def tree(root: int) -> Iterator[int]:
    """The descendants of `root`, nearest first."""
    found = children(root)
    while found:
        pid = found.pop(0)
        yield pid
        found += children(pid)


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:  # it ended meanwhile
        return found
    return found


def usage(limit: int) -> int:
    """Bytes in memory of all descendants: exact only above `limit`, a quick upper bound below it."""
    pids = list(tree(os.getpid()))
    quick = sum(resident(pid) for pid in pids)
    return quick if quick <= limit else sum(proportional(pid) for pid in pids)


def resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return resident(pid)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
