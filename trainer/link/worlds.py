"""The worker's end of the channel to its agent, read by its own thread.

The main thread may be blocked in a collective that only an abort can end.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Final, Protocol

from msgspec.structs import replace

from elasticjob.trainer.link.channel import (
    ADDRESS,
    FD,
    LIMIT,
    Abort,
    Advance,
    Boundary,
    Broken,
    Enter,
    FromAgent,
    FromWorker,
    Hello,
    Interrupt,
    Lines,
    Outside,
    Ready,
    Stop,
    decode_from_agent,
    encode,
)
from elasticjob.trainer.link.sockets import bound

log = logging.getLogger("elasticjob")

BACKLOG: Final = 65_535  # the kernel takes as much of it as net.core.somaxconn allows
READER: Final = "elasticjob-agent"
"""The thread that reads the channel; the forks of this process do not have it."""
ONE_LOOP: Final = "put all phases into its loop, by step.epoch, or start an `elasticjob run` for each of them"


class Abortable(Protocol):
    """A process group that can be aborted."""

    def abort(self) -> None: ...


class Stopped(SystemExit):
    """The agent asked this worker to leave (exit code 0)."""

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason


class Link:
    """Talks to the agent: requests worlds, receives interrupts, aborts the group when peers are lost."""

    def __init__(self, channel: socket.socket, address: str) -> None:
        self._channel = channel
        self._address = address
        self._worlds: SimpleQueue[Enter | Stop] = SimpleQueue()
        self._lock = threading.Lock()
        self._speaking = threading.Lock()
        self._inside = False  # the training thread may be blocked in a collective
        self._group: tuple[int, Abortable] | None = None
        self._interrupted = 0
        self._aborted = 0
        self._shortened = False  # said that metrics are left out
        self.say(Hello())
        threading.Thread(target=self._read, name=READER, daemon=True).start()

    def first_world(self) -> tuple[Enter, socket.socket]:
        """Send Ready; return the first world and the listening socket."""
        listener = listen(self._address)
        return self._wait(Ready(port=port_of(listener)), listener)

    def next_world(self, ended: int, error: str | None = None) -> tuple[Enter, socket.socket]:
        """Report that the world of round `ended` is over (broken, if there is an `error`); return the next
        one.

        Raises Stopped if there is none for this worker.
        """
        listener = listen(self._address)
        port = port_of(listener)
        if error is None:
            return self._wait(Boundary(round=ended, port=port), listener)
        return self._wait(Broken(round=ended, port=port, error=error[:1000]), listener)

    def interrupted(self, round_: int) -> bool:
        """Whether the world of `round_` has to end at the next step boundary."""
        return self._interrupted == round_

    def aborted(self, round_: int) -> bool:
        """Whether members of `round_` are known to be gone."""
        return self._aborted == round_

    def guard(self, round_: int, group: Abortable) -> None:
        """Abort `group` on an abort of `round_`; at once if it was received already."""
        with self._lock:
            self._group = (round_, group)
            late = self._aborted == round_
        if late:
            group.abort()

    @contextmanager
    def inside(self, inside: bool = True) -> Iterator[None]:
        """Say for the duration of a block that the training thread may be in a collective, or is in none.

        An abort that comes outside is answered by Outside, so that the agent does not take a long evaluation
        for a worker that is stuck.
        """
        before, self._inside = self._inside, inside
        try:
            yield
        finally:
            self._inside = before

    def release(self) -> None:
        """Stop guarding the group."""
        with self._lock:
            self._group = None

    def _wait(
        self, question: Ready | Boundary | Broken, listener: socket.socket
    ) -> tuple[Enter, socket.socket]:
        self.say(question)
        answer = self._worlds.get()
        if isinstance(answer, Stop):
            listener.close()
            raise Stopped(answer.reason)
        return answer, listener

    def say(self, message: FromWorker) -> None:
        """Send a message to the agent; a report that is too long loses its metrics."""
        short = shorten(message)
        if short is not message and not self._shortened:
            self._shortened = True
            log.warning("the metrics of a report are too long, and are left out: log fewer names")
        line = encode(short)
        with self._speaking:
            self._channel.sendall(line)

    def _read(self) -> None:
        """Read the agent's messages until EOF; without an agent the worker exits."""
        lines = Lines()
        with suppress(OSError):  # the agent died with messages unread
            while received := self._channel.recv(65536):
                for line in lines.feed(received):
                    self._hear(decode_from_agent(line))
        os._exit(75)

    def _hear(self, message: FromAgent) -> None:
        match message:
            case Enter() | Stop():
                self._worlds.put(message)
            case Interrupt():
                self._interrupted = message.round
            case Abort():
                self._abort(message.round)

    def _abort(self, round_: int) -> None:
        with self._lock:
            self._aborted = round_
            group = self._group[1] if self._group and self._group[0] == round_ else None
        outside = not self._inside
        if group is not None:
            group.abort()
        if outside:
            self.say(Outside(round=round_))


def from_environment(environment: Mapping[str, str]) -> Link | None:
    """Return the link to the agent that started this process, None without an agent: the worker trains alone.

    Raises an error under another launcher, where each worker would train alone, and if this process has one.
    """
    if FD not in environment:
        if int(environment.get("WORLD_SIZE") or 1) > 1:
            raise RuntimeError(
                "this script is elastic, and its launcher is not: start it with `elasticjob run`, which "
                "takes torchrun's flags"
            )
        return None
    if any(each.name == READER for each in threading.enumerate()):
        raise RuntimeError(f"there is one Elastic in a process under `elasticjob run`: {ONE_LOOP}")
    return Link(socket.socket(fileno=int(environment[FD])), environment.get(ADDRESS, "127.0.0.1"))


def channel_to(environment: Mapping[str, str]) -> socket.socket | None:
    """Return another end of the channel to the agent; None without one, as in a worker's own children."""
    with suppress(KeyError, OSError):  # the variables are inherited, the descriptor is not
        return socket.socket(fileno=os.dup(int(environment[FD])))
    return None


def shorten(message: FromWorker) -> FromWorker:
    """Return a message that fits into a line: a report that is too long without its metrics."""
    if not isinstance(message, Advance) or len(encode(message)) <= LIMIT:
        return message
    return replace(message, progress=replace(message.progress, metrics={}))


def listen(address: str) -> socket.socket:
    """Return a listening socket for the store of a round, which all workers reach before it accepts one."""
    listener = bound(address)
    listener.listen(BACKLOG)
    return listener


def port_of(listener: socket.socket) -> int:
    """Return the port on which `listener` listens."""
    port: int = listener.getsockname()[1]
    return port
