"""Worker processes: start (warm or cold), messages, signals, ends. Events go to `emit`; no decisions here.

The warm process starts them all. A signal is for the process that was started, as the user's handlers expect;
SIGKILL is for it and all that it started, which its parent process sees to (`parent.py`). Of a program
that is no Python script, which may be a wrapper, the group is signalled.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.agent.group import Event, Message, ProcessEnd, WarmReady
from elasticjob.trainer.agent.processes import parent, warm
from elasticjob.trainer.agent.processes.logs import OwnOutput, Stream
from elasticjob.trainer.agent.processes.reasons import headline
from elasticjob.trainer.agent.script import Script, folder
from elasticjob.trainer.link import pulse, stacks
from elasticjob.trainer.link.channel import FD, FromAgent, Lines, decode_from_worker, encode

log = logging.getLogger("elasticjob.agent")

LAST_WORDS = 1.0  # seconds that a dead worker's output may take to arrive


@dataclass
class Process:
    """One worker process and our ends of its streams; `pid` is 0 until its parent has reported it."""

    slot: int
    channel: socket.socket
    lines: Lines
    out: Stream | OwnOutput
    err: Stream | OwnOutput
    quiet: asyncio.Event  # stderr has ended
    error_file: Path
    page: pulse.Page
    pid: int = 0
    parent: int = 0
    handles: tuple[int | None, int | None] | None = None  # of worker and parent, None: ended
    wanted: signal.Signals | None = None  # a signal to send once the pid is known
    refused: str = ""  # why the agent cannot read what the worker says


@dataclass(frozen=True)
class Sending:
    """An order for the warm process, and copies of the descriptors that go with it."""

    order: warm.Fork | warm.Prepare
    streams: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the copies."""
        for stream in self.streams:
            os.close(stream)


class WarmProcess:
    """A warm process that we start, and our end of its line."""

    def __init__(self, environment: dict[str, str], *, cold: bool) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                warm.command_of(theirs.fileno(), os.getpid(), cold=cold),
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.kill = self._process.kill
        self.wait = self._process.wait


class Beside:
    """A warm process that was forked for us before we ran (`warm.beside`), and our end of its line."""

    def __init__(self, found: str) -> None:
        fd, self.pid = map(int, found.split(":"))
        os.set_inheritable(fd, False)
        self.line = socket.socket(fileno=fd)

    def kill(self) -> None:
        """SIGKILL it."""
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        """Return when it has ended."""
        os.waitpid(self.pid, 0)


class Workers:
    """The worker processes of one node."""

    def __init__(
        self,
        script: Script,
        *,
        emit: Callable[[Event], None],
        preloads: tuple[str, ...] | None,
        prefix: Callable[[int], str] | None,
        log_file: Callable[[int, str], Path | None],
        shown: Callable[[int, str], bool],
        folder: Path,
        echo: Callable[[int], None] | None = None,
        grace: float = 0.0,
    ) -> None:
        """`preloads` None means cold starts; without a `prefix` output passes through as it is. What a worker
        leaves behind when it ends with 0 may go on for `grace` seconds.

        `log_file` and `shown` say for a slot and stream where output goes; `echo` is called in the place of
        the traceback of a worker that has only lost its peers.
        """
        self._echo = echo
        self._script = script
        self._emit = emit
        self._preloads = preloads
        self._prefix = prefix
        self._log_file = log_file
        self._shown = shown
        self._folder = folder
        self._grace = grace
        self._processes: dict[int, Process] = {}
        self._warm: WarmProcess | Beside | None = None
        self._line: socket.socket | None = None
        self._orders: deque[Sending] = deque()  # for the warm process, which is busy
        self._endings: set[asyncio.Task[None]] = set()
        self._streams: list[Stream | OwnOutput] = []  # with output yet to be forwarded

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all workers."""
        return tuple(process.pid for process in self._processes.values() if process.pid)

    @property
    def pid_of(self) -> dict[int, int]:
        """The process id of each worker, by its slot."""
        return {slot: process.pid for slot, process in self._processes.items() if process.pid}

    @property
    def pulses(self) -> dict[int, pulse.Pulse]:
        """Where each worker says it is, by its slot; without those that are just writing it."""
        read = {slot: process.page.read() for slot, process in self._processes.items()}
        return {slot: found for slot, found in read.items() if found}

    def stacks_file(self, slot: int) -> Path:
        """Return the file for the stacks of the worker in `slot`."""
        return self._folder / f"stacks-{slot}.txt"

    def prepare(self, environment: dict[str, str]) -> None:
        """Start the warm process, or take the one that waits beside us; WarmReady follows."""
        waiting = environment.pop(warm.BESIDE, "")
        self._environment = environment
        cold = self._preloads is None
        if waiting and cold:
            os.close(int(waiting.partition(":")[0]))  # it ends by that
        self._warm = Beside(waiting) if waiting and not cold else WarmProcess(environment, cold=cold)
        self._line = self._warm.line
        self._line.setblocking(False)
        asyncio.get_running_loop().add_reader(self._line, self._hear_warm)
        if self._preloads is None:
            self._emit(WarmReady())
        else:
            self._order(Sending(warm.Prepare(self._preloads, folder(self._script))))

    def spawn(self, slot: int, environment: dict[str, str], error_file: Path) -> None:
        """Start the worker of `slot`; Said and Ended follow."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        page = pulse.page()
        process = self._open(slot, ours, error_file, pulse.Page(page))
        self._processes[slot] = process
        asyncio.get_running_loop().add_reader(ours, self._hear, process)
        environment = {**environment, stacks.FILE: str(self.stacks_file(slot))}
        try:
            with theirs:
                self._start(process, environment, (theirs.fileno(), page))
        finally:
            os.close(page)
        process.out.on_start()
        process.err.on_start()
        self._streams = [stream for stream in self._streams if not stream.drain(0)]
        self._streams += [process.out, process.err]

    def signal(self, slot: int, number: signal.Signals) -> None:
        """Signal a worker; SIGKILL ends all that it started, too."""
        process = self._processes.get(slot)
        if process is None:
            return
        if process.handles is None:
            process.wanted = number
            return
        worker, its_parent = process.handles
        if self._script.python or worker is None:
            send(worker, number)
        else:
            with suppress(ProcessLookupError):  # a wrapper passes nothing on: its group has what it wraps
                os.killpg(process.pid, number)
        if number is signal.SIGKILL:
            send(its_parent, parent.END)

    def tell(self, slot: int, message: FromAgent) -> None:
        """Send a message to a worker; ignored if the worker has ended."""
        process = self._processes.get(slot)
        if process is None:
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            process.channel.send(encode(message))

    def reap_orphans(self) -> None:
        """Reap ended children that nobody here started: a container's PID 1 inherits what workers leave."""
        own = self._warm.pid if self._warm else 0
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess, ChildProcessError):
                if child.pid != own and child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)

    async def close(self) -> None:
        """Kill all workers, then the warm process; wait for all that they started, and their output."""
        loop = asyncio.get_running_loop()
        for process in list(self._processes.values()):
            self.signal(process.slot, signal.SIGKILL)
            loop.remove_reader(process.channel)
            process.channel.close()
        for ending in self._endings:
            ending.cancel()
        line = self._line
        self._drop_line(keep=True)
        if self._warm is not None:
            self._warm.kill()
            await asyncio.to_thread(self._warm.wait)
        if line is not None:
            await asyncio.to_thread(wait_for_forks, line)
        await asyncio.to_thread(self._drain)

    def _drain(self) -> None:
        """Wait for the rest of the output, with a limit: an orphan may hold a pipe open."""
        deadline = time.monotonic() + LAST_WORDS
        for stream in self._streams:
            stream.drain(max(0.0, deadline - time.monotonic()))

    def _open(self, slot: int, channel: socket.socket, error_file: Path, page: pulse.Page) -> Process:
        loop, silent = asyncio.get_running_loop(), asyncio.Event()
        error_file.unlink(missing_ok=True)

        def ended() -> None:
            with suppress(RuntimeError):  # the agent has ended before the stream
                loop.call_soon_threadsafe(silent.set)

        def stream(name: str, sink: int, done: Callable[[], None]) -> Stream | OwnOutput:
            output, prefix, echo = (sys.stdout, sys.stderr)[sink], self._prefix, self._echo
            file, shown = self._log_file(slot, name), self._shown(slot, name)
            if shown and not (prefix or file) and (sink == 0 or output.isatty()):
                done()
                return OwnOutput(output.fileno())
            return Stream(
                sink=output.buffer if shown else None,
                file=file,
                prefix=(lambda: prefix(slot).encode()) if prefix else None,
                ended=done,
                echo=(lambda: echo(slot)) if echo and shown and sink else None,
            )

        return Process(
            slot=slot,
            channel=channel,
            lines=Lines(),
            out=stream("stdout", 0, lambda: None),
            err=stream("stderr", 1, ended),
            quiet=silent,
            error_file=error_file,
            page=page,
        )

    def _start(self, process: Process, environment: dict[str, str], ends: tuple[int, int]) -> None:
        """Ask the warm process for a worker."""
        order = warm.Fork(
            slot=process.slot,
            script=self._script.name,
            arguments=self._script.arguments,
            module=self._script.module,
            environment=environment,
            channel_variable=FD,
            python=self._script.python,
            grace=self._grace,
        )
        if self._line is None:
            self.prepare(self._environment)
        streams = (process.out.write, process.err.write, *ends)
        self._order(Sending(order, tuple(map(os.dup, streams))))

    def _order(self, sending: Sending) -> None:
        """Send an order to the warm process, as soon as its line has room."""
        self._orders.append(sending)
        self._send_orders()

    def _send_orders(self) -> None:
        loop = asyncio.get_running_loop()
        while self._orders and self._line is not None:
            try:
                warm.send(self._line, self._orders[0].order, self._orders[0].streams)
            except BlockingIOError:
                loop.add_writer(self._line, self._send_orders)
                return
            except ConnectionError:  # it is gone: heard as its end
                pass
            self._orders.popleft().close()
        if self._line is not None:
            loop.remove_writer(self._line)

    def _drop_line(self, *, keep: bool = False) -> None:
        """Close the line to the warm process, unless `keep`, and the orders that it did not get."""
        if self._line is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._line)
        loop.remove_writer(self._line)
        if not keep:
            self._line.close()
        self._line = None
        while self._orders:
            self._orders.popleft().close()

    def _hear_warm(self) -> None:
        """Handle one message of the warm process; EOF means that its forks have ended too."""
        if self._line is None:
            return
        try:
            received = self._line.recv(65536)
        except ConnectionResetError:
            received = b""
        if not received:
            self._warm_ended()
            return
        match news := warm.decode_news(received):
            case warm.Warm():
                self._emit(WarmReady())
            case warm.Forked():
                self._forked(self._processes[news.slot], news)
            case warm.Left(slot=slot, processes=processes):
                log.warning(
                    "worker %d has ended, and processes that it started have not; they have %.0f s more: %s",
                    *(slot, self._grace, ", ".join(processes)),
                )
            case warm.Reaped(pid=pid, code=code):
                self._reaped(lambda process: process.pid == pid, code)
            case warm.Lost(parent=pid):
                self._reaped(lambda process: process.parent == pid, -signal.SIGKILL)

    def _warm_ended(self) -> None:
        """Report the end of all forks of the ended warm process; the next spawn starts another."""
        self._drop_line()
        if self._warm is not None:
            self._warm.wait()  # its end of the socket closes when it exits
            self._warm = None
        self._emit(WarmReady())  # it may have died before it was ready; the next one serves as well
        for process in list(self._processes.values()):
            self._end(process, -signal.SIGKILL)

    def _forked(self, process: Process, news: warm.Forked) -> None:
        """Note the processes of a worker; send the signal that was wanted meanwhile."""
        process.pid, process.parent = news.pid, news.parent
        process.handles = open_handle(news.pid), open_handle(news.parent)
        if process.wanted is not None:
            self.signal(process.slot, process.wanted)

    def _reaped(self, is_it: Callable[[Process], bool], code: int) -> None:
        process = next((each for each in self._processes.values() if is_it(each)), None)
        if process is not None:
            self._end(process, code)

    def _end(self, process: Process, code: int) -> None:
        """Read the last messages, and report the end with its last error line."""
        self._hear(process)
        asyncio.get_running_loop().remove_reader(process.channel)
        process.channel.close()
        for handle in process.handles or ():
            if handle is not None:
                os.close(handle)
        self._processes.pop(process.slot, None)
        if code == 0:
            self._emit(ProcessEnd(process.slot, 0))
            return
        ending = asyncio.get_running_loop().create_task(self._last_words(process, code))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _last_words(self, process: Process, code: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await process.quiet.wait()
        said = recorded_error(process.error_file) or process.err.reason
        self._emit(ProcessEnd(process.slot, code, process.refused or said, frame=process.err.frame))

    def _hear(self, process: Process) -> None:
        """Read a worker's messages; a worker that violates the protocol is killed."""
        try:
            while received := process.channel.recv(65536):
                for line in process.lines.feed(received):
                    self._emit(Message(process.slot, decode_from_worker(line)))
        except (BlockingIOError, ConnectionResetError):
            return
        except (ValueError, *UNREADABLE) as error:
            process.refused = f"killed: its agent cannot read what it says: {error}"
            self.signal(process.slot, signal.SIGKILL)
        asyncio.get_running_loop().remove_reader(process.channel)  # closed by the worker, which will exit


def open_handle(pid: int) -> int | None:
    """Return a handle of a process, whose pid may be another's later; None if it has ended."""
    with suppress(ProcessLookupError):
        return os.pidfd_open(pid)
    return None


def send(process: int | None, number: signal.Signals) -> None:
    """Signal a process by its handle, if it is there."""
    with suppress(ProcessLookupError):
        if process is not None:
            signal.pidfd_send_signal(process, number)


def wait_for_forks(line: socket.socket) -> None:
    """Return when all forks of a killed warm process have ended their workers' trees, or after some time."""
    line.settimeout(parent.STUCK)
    with line, suppress(OSError):
        while line.recv(65536):
            pass


def recorded_error(path: Path) -> str:
    """Return the error in the error file of torch's @record in one line, empty if there is none."""
    try:
        message = json.loads(path.read_text())["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    known = isinstance(message, dict) and "message" in message
    return headline(str(message["message"] if known else message))
