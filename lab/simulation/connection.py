"""The requests of one program to the API server: writes are numbered, and faults strike them by number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from zlib import crc32

from elasticjob.kube.client import writes
from elasticjob.kube.errors import Fenced, Unreachable
from elasticjob.kube.objects.kinds import Kind
from lab.virtual.server import Server, Verbs

USER: Final = "user"
OPERATOR: Final = "operator"
BRAIN: Final = "brain"
MASTERS: Final = "master"
"""Programs by the names of their connections; a master's has the uid of its pod behind it."""
READS: Final = ("get", "list")
WAYS: Final = (0.001, 0.002, 0.01)
"""Seconds that a request or its answer takes."""


def name_of_master(uid: str) -> str:
    """The name of the connection of the master in the pod with this uid."""
    return f"{MASTERS} {uid}"


def program_of(connection: str) -> str:
    """The program of a connection's name: all masters are one."""
    return connection.partition(" ")[0]


@dataclass(frozen=True)
class Write:
    """A request that may change something: the how manyth of its program, and by which controller."""

    program: str
    number: int
    controller: str
    verb: str
    kind: str
    name: str
    at: float = 0.0
    """When it was sent."""


@dataclass(frozen=True)
class Strike:
    """A fault of one write, `after` it was done or before. It may raise the error that its program sees."""

    after: bool
    befall: Callable[[Connection], Awaitable[None]]
    spares: str = ""
    """A verb that it does not befall: then it is the next write."""
    is_sent: bool = False
    """Whether it is carried out although its program ends meanwhile."""


class Book(Protocol):
    """Where writes are counted, and who knows which of them are struck."""

    sent: float
    """When the request was sent that is carried out now."""

    @property
    def time(self) -> float: ...

    def enter(self, program: str, controller: str, verb: str, kind: str, name: str) -> Write: ...

    def struck(self, write: Write) -> Strike | None: ...


class Connection(Verbs):
    """The way of one program to the server, until it is killed."""

    def __init__(self, server: Server, program: str, book: Book, seed: int) -> None:
        self.server, self.program, self._book, self._seed = server, program, book, seed
        self.dead = self.fenced = False
        self.paused: asyncio.Event | None = None
        """What requests wait for while their process is stopped."""
        self.what = ""
        """The last write."""
        self._under_way: dict[Any, Strike] = {}
        self._asked = 0

    async def asked(self, verb: str, kind: Kind[Any], name: str) -> None:
        if self.fenced and verb not in READS:
            raise Fenced("nothing is written any more: the lease is over")
        sent = self._book.time
        await self._takes(f"{verb} {name}")
        if self.server.away:
            raise Unreachable("connection refused", never_sent=True)
        if verb not in READS:
            await self._strike(verb, kind, name)
        if error := self.server.fault(verb, kind, name):
            raise error
        self.server.writer, self._book.sent = self.program, sent  # until this step of the task ends
        asyncio.get_running_loop().call_soon(self._has_asked)

    async def answered(self) -> None:
        self._has_asked()
        strike = self._under_way.pop(asyncio.current_task(), None)
        await self._takes("answer")
        if strike:
            await strike.befall(self)
        await self._alive()
        if self.server.away:
            raise Unreachable("connection reset")

    def _has_asked(self) -> None:
        self.server.writer = ""

    async def _strike(self, verb: str, kind: Kind[Any], name: str) -> None:
        run = writes.current.get()
        write = self._book.enter(self.program, run.controller if run else "", verb, kind.name, name)
        strike = self._book.struck(write)
        self.what = f"{verb} {kind.name} {name}"
        if strike and strike.after:
            self._under_way[asyncio.current_task()] = strike
        elif strike:
            await strike.befall(self)
            if not strike.is_sent:
                await self._alive()

    async def _takes(self, what: str) -> None:
        """Wait for as long as half of a request takes; a stopped process waits until it goes on."""
        await self._alive()
        self._asked += 1
        number = crc32(f"{self._seed} {self.program} {what} {self._asked}".encode())
        await asyncio.sleep(WAYS[number % len(WAYS)])
        if self.paused:
            await self.paused.wait()
        await self._alive()

    async def _alive(self) -> None:
        """A killed process does nothing more, whatever its code would do when it is cancelled."""
        if self.dead:
            await asyncio.get_running_loop().create_future()
