"""A process that serves values: what it keeps, and how the master directs it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from elasticjob.api.rpc import environment as names
from elasticjob.api.rpc.parameters import LONGEST, Kept, Phase, Plane, Positions, Serve
from elasticjob.trainer.checkpoint.newest import patience
from elasticjob.trainer.link.address import Way
from elasticjob.trainer.link.master import MasterClient
from elasticjob.trainer.servers.link import BEAT, PAUSE, Link, log


@dataclass(frozen=True)
class Move:
    """A change of servers: their addresses before (none at the first start) and after; the own place then.

    The values of before are those of the version `since`; some of its servers may be lost. With `restores`,
    all values come from the checkpoint of that number instead, or are made anew if it is 0.
    """

    version: int
    since: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    me: int
    restores: int | None = None


class Gone(Exception):
    """Values that a server should take over are nowhere to be found: all go back to the last checkpoint."""


class Values(Protocol):
    """What a server keeps. Both are called from one thread, never at once."""

    def take_over(self, move: Move) -> None:
        """Return when this process has all values that are its own after the move.

        Workers send nothing meanwhile, and the servers of before still have theirs, unless they were lost.
        May be called again, with another version, before `use`: the values of before are right then. An
        OSError is logged, and it is called again after a pause, unless the move is given up; Gone says that
        this would not help.
        """

    def use(self, version: int, servers: tuple[str, ...]) -> None:
        """From now on updates of this version come, and no others.

        Called again with the same version after a move that was given up.
        """


class Checkpoints(Protocol):
    """What a server keeps in files. `copy` is called from the thread of its Values, the others beside it."""

    def newest(self) -> Kept | None:
        """Return the newest complete checkpoint: at the start, and after one to go back to was Gone."""

    def copy(self, number: int) -> None:
        """Return when the present values are copied in memory: no update comes meanwhile, all wait."""

    def write(self, number: int, positions: Positions, place: int, servers: int) -> None:
        """Return when the copy is in files, with the positions of the datasets.

        An OSError is told, in the job's status, too, and it is called again.
        """

    def keep(self, number: int) -> None:
        """Note that this checkpoint counts: those before it may be deleted, but for the last one."""


class Serving(Link):
    """Tells the master that this process serves at `address` (host:port), and keeps `values` up to date.

    With `copies`, its values have a copy on another server, so that the loss of one server loses none.
    """

    def __init__(
        self,
        address: str,
        values: Values,
        *,
        checkpoints: Checkpoints | None = None,
        copies: bool = False,
        index: int | None = None,
        way: Way | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(way)
        self._address, self._values, self._checkpoints, self._copies = address, values, checkpoints, copies
        self._index = int(os.environ.get(names.INDEX, "0")) if index is None else index
        self._holds, self._gone, self._used, self._offered, self._seen = 0, 0, 0, 0, ""
        self._copied, self._written, self._kept, self._error = 0, 0, 0, ""
        self._found = checkpoints.newest() if checkpoints else None
        self._writing: asyncio.Future[None] | None = None
        self._patience, self._clock = patience(os.environ), clock
        self._waits: float | None = None  # since when values cannot be taken over

    def wait(self) -> None:
        """Return when the job ends. Raises what ended the conversation with the master, if something did."""
        self.ended.wait()
        if self.failure is not None:
            raise self.failure

    async def _turn(self, master: MasterClient) -> None:
        plane = await self._ask(master, self._request())
        if plane is None:
            return
        self._seen = plane.mark
        after = [server.incarnation for server in plane.next_servers]
        takes_over = plane.phase is Phase.MOVE and self.incarnation in after
        if takes_over and plane.next_version not in (self._holds, self._gone):
            await self._beside(master, self._take_over, _move(plane, after.index(self.incarnation)))
        # Others may have read the values for a change that was given up, and that this server never saw.
        given_up = plane.phase is Phase.STEADY and plane.offered != self._offered
        serves = plane.phase in (Phase.STEADY, Phase.PREPARE, Phase.SAVE)
        if serves and (plane.version != self._used or given_up):
            self._used = plane.version
            self._offered = plane.offered if plane.phase is Phase.STEADY else self._offered
            servers = tuple(server.address for server in plane.servers)
            await self._beside(master, self._values.use, plane.version, servers)
        now = [server.incarnation for server in plane.servers]
        if self._checkpoints and self.incarnation in now:
            await self._save(master, self._checkpoints, plane, now.index(self.incarnation))

    def _take_over(self, move: Move) -> None:
        try:
            self._values.take_over(move)
            self._holds, self._waits, self._error = move.version, None, ""
        except Gone as error:
            self._tell(move, f"values of version {move.since} are lost: {error}")
            if self._checkpoints and move.restores is not None:
                self._found = self._checkpoints.newest()
            self._gone, self._waits = move.version, None
        except OSError as error:
            if move.restores:
                self._waits = self._clock() if self._waits is None else self._waits
                if self._clock() - self._waits >= self._patience:
                    raise  # storage was waited for; this process ends
            self._tell(move, f"the values of version {move.since} are not there yet, again soon: {error}")
            self._seen = ""  # be told at once again what to do
            self.ended.wait(PAUSE)

    def _tell(self, move: Move, why: str) -> None:
        """Log why values are not taken over; the job's status has it, too, if they come from storage."""
        log.warning("%s", why)
        if move.restores:
            self._error = why[:LONGEST]

    async def _save(self, master: MasterClient, checkpoints: Checkpoints, plane: Plane, place: int) -> None:
        """Copy the values in the stop for a save; write the copy while training goes on."""
        if plane.phase is Phase.SAVE and self._copied != plane.saves:
            await self._beside(master, checkpoints.copy, plane.saves)
            self._copied = plane.saves
        due = plane.phase is not Phase.SAVE and plane.saves == self._copied != self._written
        if due and self._writing is None:
            write = asyncio.to_thread(
                checkpoints.write, plane.saves, plane.position, place, len(plane.servers)
            )
            self._writing = asyncio.ensure_future(self._written_by(write, plane.saves))
        if plane.kept != self._kept:
            self._kept = plane.kept
            try:
                await asyncio.to_thread(checkpoints.keep, plane.kept)
            except OSError as error:
                log.warning("checkpoints before %d are not removed, which takes room: %s", plane.kept, error)

    async def _written_by(self, write: Awaitable[None], number: int) -> None:
        try:
            await write
            self._written, self._error = number, ""
            self._again.set()
        except Exception as error:  # whatever files raise: it is tried again
            why = error if isinstance(error, OSError) else repr(error)
            log.warning("checkpoint %d is not written, again soon: %s", number, why)
            self._error = f"checkpoint {number} is not written: {why}"[:LONGEST]
            self._again.set()
            await asyncio.sleep(PAUSE)
        finally:
            self._writing = None

    async def _talk(self) -> None:
        try:
            await super()._talk()
        finally:
            if self._writing is not None:
                self._writing.cancel()
                await asyncio.gather(self._writing, return_exceptions=True)

    async def _beside(self, master: MasterClient, do: Callable[..., None], *arguments: Any) -> None:
        """Do it in a thread, and be heard meanwhile."""
        beating = asyncio.ensure_future(self._beat(master))
        try:
            await asyncio.to_thread(do, *arguments)
        finally:
            beating.cancel()

    async def _beat(self, master: MasterClient) -> None:
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
            gone=self._gone,
            copies=self._copies,
            copied=self._copied,
            written=self._written,
            found=self._found,
            error=self._error,
            usage=self._own.now(),
            seen=self._seen,
            wait=wait,
        )


def _move(plane: Plane, me: int) -> Move:
    return Move(
        version=plane.next_version,
        since=plane.version,
        before=tuple(server.address for server in plane.servers),
        after=tuple(server.address for server in plane.next_servers),
        me=me,
        restores=plane.restores,
    )
