"""Parameter servers that may change while they train, for plain Python: no framework is needed.

A process that serves values:

    with Serving("10.0.0.7:7000", values) as serving:  # values has take_over(move), use(version, servers)
        serving.wait()                                 # until the job ends

A process that trains with them:

    with Following() as servers:
        for batch in data:
            servers.at_boundary()                      # between two steps, with nothing under way: may wait
            train(batch, servers.addresses, servers.version)

When servers come, go, move or are lost, every worker stops at its boundary, the next servers take the values
over, and then all go on with them: no update is lost or made twice, if each is sent with `version` and a
server refuses those of another version than its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from elasticjob.api.rpc import environment as names
from elasticjob.api.rpc.parameters import Depart, Follow, Phase, Plane, Serve
from elasticjob.trainer.link.address import FILE, NoMaster, Way, way_from
from elasticjob.trainer.link.master import MasterClient, MasterError, Stopping

__all__ = ["Following", "Move", "NoMaster", "Serving", "Values"]

log = logging.getLogger("elasticjob.parameters")

BEAT: Final = 1.0
"""Seconds of a long poll, each of which is a heartbeat, too."""
PAUSE: Final = 0.5
"""Seconds until the master is asked again after it refused."""


@dataclass(frozen=True)
class Move:
    """A change of servers: their addresses before (none at the first start) and after; the own place then.

    The values of before are those of the version `since`; some of its servers may be lost.
    """

    version: int
    since: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    me: int


class Values(Protocol):
    """What a server keeps. Both are called from one thread, never at once."""

    def take_over(self, move: Move) -> None:
        """Return when this process has all values that are its own after the move.

        Workers send nothing meanwhile, and the servers of before still have theirs, unless they were lost.
        May be called again, with another version, before `use`: the values of before are right then.
        """

    def use(self, version: int, servers: tuple[str, ...]) -> None:
        """From now on updates of this version come, and no others."""


class _Link:
    """The conversation with the master, in a thread of its own."""

    def __init__(self, way: Way | None) -> None:
        self.way = way or way_of(os.environ)
        self.incarnation = uuid.uuid4().hex
        self.ended = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="elasticjob-parameters", daemon=True)
        self._again = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._poke()
        self._thread.join(10.0)

    def _poke(self) -> None:
        """Have the master asked at once."""
        self._loop.call_soon_threadsafe(self._again.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._talk())
        finally:
            self.ended.set()
            self._loop.close()

    async def _talk(self) -> None:
        async with MasterClient(self.way.address, token=self.way.token()) as master:
            while not self.ended.is_set():
                try:
                    await self._turn(master)
                except Stopping:
                    break
                except MasterError as error:
                    log.warning("the master does not answer as it should, again soon: %s", error)
                    await asyncio.sleep(PAUSE)
            await self._farewell(master)

    async def _turn(self, master: MasterClient) -> None:
        raise NotImplementedError

    async def _farewell(self, master: MasterClient) -> None:
        """Send nothing: the master drops members that miss their heartbeat, and waits for none of them."""

    async def _ask(self, master: MasterClient, request: Serve | Follow) -> Plane | None:
        """Return the answer; None if there is something to tell before it comes."""
        self._again.clear()
        asking = asyncio.ensure_future(master.call(request))
        telling = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait((asking, telling), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for each in (asking, telling):
                each.cancel()


class Serving(_Link):
    """Tells the master that this process serves at `address` (host:port), and keeps `values` up to date."""

    def __init__(
        self, address: str, values: Values, *, index: int | None = None, way: Way | None = None
    ) -> None:
        super().__init__(way)
        self._address, self._values = address, values
        self._index = int(os.environ.get(names.INDEX, "0")) if index is None else index
        self._holds, self._used, self._seen = 0, 0, ""

    def wait(self) -> None:
        """Return when the job ends."""
        self.ended.wait()

    async def _turn(self, master: MasterClient) -> None:
        plane = await self._ask(master, self._request())
        if plane is None:
            return
        self._seen = plane.mark
        after = [server.incarnation for server in plane.next_servers]
        if plane.phase is Phase.MOVE and self.incarnation in after and self._holds != plane.next_version:
            before = tuple(server.address for server in plane.servers)
            move = Move(
                version=plane.next_version,
                since=plane.version,
                before=before,
                after=tuple(server.address for server in plane.next_servers),
                me=after.index(self.incarnation),
            )
            beating = asyncio.ensure_future(self._beat(master))
            try:
                await asyncio.to_thread(self._values.take_over, move)
            finally:
                beating.cancel()
            self._holds = plane.next_version
        if plane.phase is Phase.STEADY and plane.version != self._used:
            self._used = plane.version
            servers = tuple(server.address for server in plane.servers)
            await asyncio.to_thread(self._values.use, plane.version, servers)

    async def _beat(self, master: MasterClient) -> None:
        """Be heard while values are taken over."""
        while True:
            await asyncio.sleep(BEAT)
            await master.call(self._request(wait=0.0))

    def _request(self, wait: float = BEAT) -> Serve:
        return Serve(
            node=self.way.node,
            incarnation=self.incarnation,
            pod=os.environ.get(names.POD_NAME, ""),
            index=self._index,
            address=self._address,
            holds=self._holds,
            seen=self._seen,
            wait=wait,
        )


class Following(_Link):
    """Knows which servers to train with. `addresses` and `version` change in `at_boundary` only."""

    def __init__(self, *, way: Way | None = None) -> None:
        super().__init__(way)
        self.addresses: tuple[str, ...] = ()
        self.version = 0
        self._plane, self._drained = Plane(), 0
        self._changed = threading.Condition()

    def at_boundary(self, timeout: float | None = None) -> bool:
        """Take part in a change of servers, if there is one; return whether others serve now.

        Call it with nothing under way. Raises TimeoutError if the servers are not there after `timeout`
        seconds, MasterError when the job ends.
        """
        with self._changed:
            if not self._changed.wait_for(self._settled, timeout):
                raise TimeoutError(f"there are no parameter servers after {timeout:g} s")
            if self.ended.is_set():
                raise MasterError("the job ends")
            plane = self._plane
            changed = plane.version != self.version
            self.version = plane.version
            self.addresses = tuple(server.address for server in plane.servers)
            return changed

    def wait_for_change(self, seconds: float) -> None:
        """Wait until other servers are to serve, at most so long: after a server did not answer."""
        with self._changed:
            self._changed.wait_for(self._is_new, seconds)

    def _is_new(self) -> bool:
        return (
            self.ended.is_set()
            or self._plane.phase is not Phase.STEADY
            or self._plane.version != self.version
        )

    def _settled(self) -> bool:
        """Whether no change is under way; for one that is, tell the master that nothing is."""
        if self._plane.phase in (Phase.DRAIN, Phase.MOVE) and self._drained != self._plane.next_version:
            self._drained = self._plane.next_version
            self._poke()
        return self.ended.is_set() or self._plane.phase is Phase.STEADY

    async def _turn(self, master: MasterClient) -> None:
        plane = await self._ask(master, self._request())
        if plane is not None:
            with self._changed:
                self._plane = plane
                self._changed.notify_all()

    async def _farewell(self, master: MasterClient) -> None:
        with self._changed:
            self.ended.set()
            self._changed.notify_all()
        try:
            await master.call(Depart(node=self.way.node, incarnation=self.incarnation), patience=BEAT)
        except MasterError as error:
            log.debug("the master is not told that this worker ends: %s", error)

    def _request(self) -> Follow:
        return Follow(
            node=self.way.node,
            incarnation=self.incarnation,
            drained=self._drained,
            seen=self._plane.mark,
            wait=BEAT,
        )


def way_of(environment: Mapping[str, str]) -> Way:
    """Return the way to the master, by the agent's file or the pod's environment. Raises NoMaster."""
    if environment.get(FILE) or names.MASTER not in environment:
        return way_from(environment)
    token = environment.get(names.TOKEN_FILE, names.TOKEN_PATH)
    return Way(
        address=environment[names.MASTER],
        token_file=token if Path(token).is_file() else "",
        node=environment.get(names.NODE, ""),
    )
