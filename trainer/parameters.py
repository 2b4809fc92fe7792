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

A save stops the workers in the same way, for as long as the servers copy their values in memory; the position
of the datasets is that of the stop. If values are lost, all servers go back to the last checkpoint that
counts, and the datasets go back with them: `restored` has changed after `at_boundary`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from elasticjob.api.rpc import environment as names
from elasticjob.api.rpc.parameters import LONGEST, Depart, Follow, Kept, Phase, Plane, Positions, Save, Serve
from elasticjob.trainer.link.address import FILE, SLOT, NoMaster, Way, way_from
from elasticjob.trainer.link.master import MasterClient, MasterError, Stopping
from elasticjob.trainer.usage.own import Own

__all__ = ["Checkpoints", "Following", "Gone", "Kept", "Move", "NoMaster", "Serving", "Values"]

log = logging.getLogger("elasticjob.parameters")

SAVE_AGAIN: Final = 1.0
"""Seconds until the last checkpoint is asked for again: none is begun while another is written."""
BEAT: Final = 1.0
"""Seconds of a long poll, each of which is a heartbeat, too."""
PAUSE: Final = 0.5
"""Seconds until the master is asked again after it refused, and what failed is tried again."""
FAREWELL: Final = 10.0
"""Seconds that a thread may take to end, when this is closed."""
STOPS: Final = frozenset({Phase.DRAIN, Phase.MOVE, Phase.SAVE})
"""Phases in which workers have nothing under way."""


class Leaving:
    """Whether a worker was told by SIGTERM to leave. A handler that the script has set itself is left alone.

    A container's first process would not even end by SIGTERM, as it has no handler by default.
    """

    def __init__(self) -> None:
        self._told = threading.Event()
        self._hears = False

    def is_set(self) -> bool:
        """Whether it is to leave."""
        return self._told.is_set()

    def hear(self) -> None:
        """Heed SIGTERM from now on; signals reach a process's main thread alone."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: self._told.set())
            self._hears = True

    def close(self) -> None:
        """Leave SIGTERM as it was."""
        if self._hears:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._hears = False


def end_by_sigterm(end: Callable[[int], object]) -> None:
    """Have SIGTERM end a server, with the code that a shell gives: nothing is gained by its waiting."""
    signal.signal(signal.SIGTERM, lambda number, _: end(128 + number))


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

    def found(self) -> Kept | None:
        """Return the newest complete checkpoint: at the start, and after one to go back to was Gone."""

    def copy(self, number: int) -> None:
        """Return when the present values are copied in memory: no update comes meanwhile, all wait."""

    def write(self, number: int, positions: Positions, place: int, servers: int) -> None:
        """Return when the copy is in files, with the positions of the datasets.

        An OSError is told, in the job's status, too, and it is called again.
        """

    def keep(self, number: int) -> None:
        """Note that this checkpoint counts: those before it may be deleted, but for the last one."""


class _Link:
    """The conversation with the master, in a thread of its own."""

    def __init__(self, way: Way | None) -> None:
        self.way = way or way_of(os.environ)
        self.incarnation = uuid.uuid4().hex
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self._own = Own()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="elasticjob-parameters", daemon=True)
        self._others: list[threading.Thread] = []
        self._again = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._poke()
        for each in (self._thread, *self._others):
            each.join(FAREWELL)

    def _poke(self) -> None:
        """Have the master asked at once."""
        with suppress(RuntimeError):  # the job has ended, and with it the thread
            self._loop.call_soon_threadsafe(self._again.set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._talk())
        except Exception as error:
            self.failure = error
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
    ) -> None:
        super().__init__(way)
        self._address, self._values, self._checkpoints, self._copies = address, values, checkpoints, copies
        self._index = int(os.environ.get(names.INDEX, "0")) if index is None else index
        self._holds, self._gone, self._used, self._offered, self._seen = 0, 0, 0, 0, ""
        self._copied, self._written, self._kept, self._error = 0, 0, 0, ""
        self._found = checkpoints.found() if checkpoints else None
        self._writing: asyncio.Future[None] | None = None

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
            self._holds = move.version
        except Gone as error:
            log.warning("values of version %d are lost: %s", move.since, error)
            if self._checkpoints and move.restores is not None:
                self._found = self._checkpoints.found()
            self._gone = move.version
        except OSError as error:
            log.warning("the values of version %d are not there yet, again soon: %s", move.since, error)
            self._seen = ""  # be told at once again what to do
            self.ended.wait(PAUSE)

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
        except OSError as error:
            log.warning("checkpoint %d is not written, again soon: %s", number, error)
            self._error = f"checkpoint {number} is not written: {error}"[:LONGEST]
            self._again.set()
            await asyncio.sleep(PAUSE)
        finally:
            self._writing = None

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


class Following(_Link):
    """Knows which servers to train with. `addresses`, `version` and `restored` change in `at_boundary` only.

    `prepare(version, addresses)` is called before a change, in a thread of its own while training goes on,
    and the change waits for it for some seconds. `finish(number)` completes a checkpoint that all servers
    have written, in the first worker only (the chief), before it counts. `flush()` reports to the master what
    is applied; it is called before the stop of a change or save. `abandon()` is called, in a thread, when all
    values go back to a checkpoint while something is under way: it may wait for a server that was lost, and
    need not end well.
    """

    def __init__(
        self,
        *,
        prepare: Callable[[int, tuple[str, ...]], None] | None = None,
        finish: Callable[[int], None] | None = None,
        flush: Callable[[], None] | None = None,
        abandon: Callable[[], None] | None = None,
        way: Way | None = None,
    ) -> None:
        super().__init__(way)
        self.addresses: tuple[str, ...] = ()
        self.version = 0
        self.restored = 0
        self._prepare, self._finish, self._flush, self._abandon = prepare, finish, flush, abandon
        self._plane, self._drained, self._prepared, self._finished = Plane(), 0, 0, 0
        self._idle = True  # nothing is under way: before the first boundary, and while it waits in one
        self._beside: dict[str, int] = {}  # what is done in a thread, and for which number
        self._wants_save = False
        self._changed = threading.Condition()

    @property
    def changing(self) -> bool:
        """Whether the next `at_boundary` takes part in a change or a save."""
        return self._plane.phase in STOPS or self._plane.version != self.version

    @property
    def is_chief(self) -> bool:
        """Whether this is the first worker of those that are there."""
        return self._plane.chief == self.incarnation

    @property
    def kept(self) -> int:
        """The number of the last checkpoint that counts, 0 for none."""
        return self._plane.kept

    @property
    def saving(self) -> int:
        """The number of the save that is under way or being written, 0 for none."""
        return self._plane.saves

    def save(self) -> None:
        """Ask for a checkpoint; nothing happens while a change or another save is under way."""
        self._wants_save = True
        self._poke()

    def at_boundary(self, timeout: float | None = None) -> bool:
        """Take part in a change of servers or a save, if there is one; return whether others serve now.

        Call it with nothing under way. Raises TimeoutError if the servers are not there after `timeout`
        seconds, MasterError when the job ends.
        """
        if self._flush and self._plane.phase in STOPS and not self._idle:
            self._flush()
        with self._changed:
            self._idle = True
            self._drain()
            if not self._changed.wait_for(self._settled, timeout):
                raise TimeoutError(f"there are no parameter servers after {timeout:g} s")
            if self.ended.is_set():
                raise MasterError("the job ends") from self.failure
            self._idle = False
            plane = self._plane
            changed = plane.version != self.version
            self.version, self.restored = plane.version, plane.restored
            self.addresses = tuple(server.address for server in plane.servers)
            return changed

    def wait_for_change(self, seconds: float) -> None:
        """Wait until other servers are to serve, at most so long: after a server did not answer."""
        with self._changed:
            self._changed.wait_for(self._is_new, seconds)

    def is_saved(self, restored: int, attend: Callable[[], bool], *, saves: bool) -> bool:
        """At the end of the data: if it `saves`, have the first worker save once more before it goes.

        `attend` takes part in changes, and is False if this worker is to leave. Returns False if values went
        back to a checkpoint since `restored` was read: the datasets did, too, and there is more to do.
        """
        goes_on = attend()
        before = max(self.kept, self.saving)  # one that is being written lacks the last steps
        while goes_on and saves and self.is_chief and self.kept <= before and self.restored == restored:
            self.save()
            self.wait_for_change(SAVE_AGAIN)
            goes_on = attend()
        return self.restored == restored

    def _is_new(self) -> bool:
        return self.ended.is_set() or self.changing

    def _settled(self) -> bool:
        return self.ended.is_set() or self._plane.phase in (Phase.STEADY, Phase.PREPARE)

    def _drain(self) -> None:
        """Tell the master that nothing is under way for the change of now, if that is so."""
        number = self._plane.next_version or self._plane.saves
        if self._idle and self._plane.phase in STOPS and self._drained != number:
            self._drained = number
            self._poke()

    async def _turn(self, master: MasterClient) -> None:
        if self._wants_save:
            self._wants_save = False
            await master.call(Save(node=self.way.node, incarnation=self.incarnation))
        plane = await self._ask(master, self._request())
        if plane is None:
            return
        with self._changed:
            self._plane = plane
            self._drain()
            self._changed.notify_all()
        if self._prepare and plane.phase is Phase.PREPARE and self._begins("prepare", plane.next_version):
            addresses = tuple(server.address for server in plane.next_servers)
            self._start(self._do_prepare, plane.next_version, addresses)
        goes_back = plane.restores is not None and plane.phase in STOPS and not self._idle
        if self._abandon and goes_back and self._begins("abandon", plane.next_version):
            self._start(self._abandon)
        if self._finish and plane.written and self.is_chief and self._begins("finish", plane.saves):
            self._start(self._do_finish, plane.saves)

    def _begins(self, what: str, number: int) -> bool:
        """Whether this is not under way or done for this number."""
        begins = self._beside.get(what) != number
        self._beside[what] = number
        return begins

    def _start(self, do: Callable[..., None], *arguments: Any) -> None:
        name = f"elasticjob-{do.__name__}"
        thread = threading.Thread(target=do, args=arguments, name=name, daemon=True)
        self._others = [thread, *(each for each in self._others if each.is_alive())]
        thread.start()

    def _do_prepare(self, version: int, addresses: tuple[str, ...]) -> None:
        assert self._prepare
        try:
            self._prepare(version, addresses)
        except Exception:
            log.warning(
                "this worker is not prepared for version %d, which costs time", version, exc_info=True
            )
        self._prepared = version
        self._poke()

    def _do_finish(self, number: int) -> None:
        assert self._finish
        try:
            self._finish(number)
        except Exception:
            log.warning("checkpoint %d is not finished, again soon", number, exc_info=True)
            self.ended.wait(PAUSE)
            self._beside.pop("finish", None)
        else:
            self._finished = number
        self._poke()

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
            worker=os.environ.get(SLOT, "0"),
            incarnation=self.incarnation,
            drained=self._drained,
            prepares=self._prepare is not None,
            prepared=self._prepared,
            finishes=self._finish is not None,
            finished=self._finished,
            usage=self._own.now(),
            seen=self._plane.mark,
            wait=BEAT,
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
