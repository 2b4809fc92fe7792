"""A leader's permission to write, which expires by itself.

Guarantees, for each write sent while a fence is `current` (all writes of an Operator's controllers are)
- It is sent only before the deadline, by a clock that goes on while the machine is suspended. That is looked
  at before the request, and again in the moment in which its bytes are handed over, however long the process
  was stopped in between.
- It gets no more time than is left: the server is told so (`timeout=`), and at the deadline its connection is
  reset, whatever the rest of the process does. Bytes that were not sent are discarded, not sent later.
- Bytes that are under way and not acknowledged are given up by the kernel within half of the margin between
  the deadline and the moment at which another may lead, even when the process is stopped or has ended.

What remains possible: a write that the *server* (or a proxy that has taken the whole request) holds back for
longer than the margin, 5 s by default, before it acts on it. And a process that is stopped between the last
look at the clock and the system call behind it, some microseconds apart. Neither can be closed from here:
reconcilers still write with what makes them safe against each other: uids, resourceVersions, and names that
follow from the spec.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from math import inf
from typing import Any
from weakref import WeakSet

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from elasticjob.kube.errors import Fenced

CHUNK = 1 << 16
"""Bytes that are handed over between two looks at the clock."""

current: ContextVar[Fence | None] = ContextVar("fence", default=None)
"""The fence of the running task; a task inherits it from the one that starts it, a thread by `to_thread`."""


class Fence:
    """Down until it is first moved; may be asked and felled from every thread, and moved from one."""

    def __init__(self, now: Callable[[], float], margin: timedelta) -> None:
        """`margin` is the time between the deadline and the moment at which another may lead."""
        self._now = now
        self._user_timeout = max(1, round(margin.total_seconds() * 1000 / 2))
        self._until = -inf
        self._why = "this process does not lead"
        self._fallen = False
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._under_way = 0
        self._unanswered = -inf

    def move(self, until: float) -> None:
        """Let writes pass until then, unless it has fallen."""
        self._until = until

    def fall(self, why: str) -> None:
        """Let no write pass any more, and reset the connections of those that are under way. Final.

        From any thread, also while another moves it.
        """
        self._why, self._fallen = why, True
        with self._lock:
            for opened in self._sockets:
                _reset(opened)

    def left(self) -> float:
        """Seconds that a write has. Raises Fenced when there are none."""
        if self._fallen or self._until == -inf:
            raise Fenced(f"nothing is written any more: {self._why}")
        left = self._until - self._now()
        if left <= 0:
            raise Fenced("nothing is written any more: the lease is over")
        return left

    def is_quiet(self, since: float) -> bool:
        """Whether every write that was sent has been answered, or was given up before `since`."""
        return self._under_way == 0 and self._unanswered < since

    @contextmanager
    def writing(self) -> Iterator[Outcome]:
        """Keep book of one write, which is unanswered unless the block says otherwise."""
        answered = Outcome()
        self._under_way += 1
        try:
            yield answered
        finally:
            self._under_way -= 1
            if not answered.yes:
                self._unanswered = self._now()

    def payload(self, body: bytes) -> FencedBody:
        """The body of a request, which is not sent once the fence has fallen."""
        return FencedBody(body, self)

    def socket(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket that is reset when the fence falls, and discards what is unsent whenever it is closed."""
        family, type_, protocol = address[:3]
        opened = socket.socket(family, type_, protocol)
        if family in (socket.AF_INET, socket.AF_INET6):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._user_timeout)
        with self._lock:
            self._sockets.add(opened)
        return opened


class Outcome:
    """Whether a write was answered by the server that acted on it, or refused to."""

    yes = False


class FencedBody(Payload):
    """A request body that checks the fence when it is sent."""

    _value: bytes

    def __init__(self, body: bytes, fence: Fence) -> None:
        super().__init__(body, content_type="application/json")
        self._fence = fence
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Hand the bytes over, piece by piece. Raises Fenced; a request without its end is none."""
        self._fence.left()
        for start in range(0, len(self._value), CHUNK):
            self._fence.left()
            await writer.write(self._value[start : start + CHUNK])
            if start:
                await asyncio.sleep(0)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)


@contextmanager
def behind(fence: Fence | None) -> Iterator[None]:
    """Have the writes of the block, and of all tasks started in it, pass only while `fence` lets them."""
    token = current.set(fence)
    try:
        yield
    finally:
        current.reset(token)


_NOWHERE = struct.pack("=H14x", socket.AF_UNSPEC)


def _reset(opened: socket.socket) -> None:
    """Cut a connection as by SO_LINGER 0 and close, from any thread: its event loop still closes it.

    Linux: connecting to nowhere sends RST and drops both queues. Elsewhere nothing happens here, and what is
    unsent is discarded when the process ends.
    """
    number = opened.fileno()
    if number >= 0:
        ctypes.CDLL(None).connect(number, _NOWHERE, len(_NOWHERE))
