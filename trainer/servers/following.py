"""A worker that trains with servers: it knows which ones, and stops for changes and saves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from elasticjob.api.rpc.parameters import Depart, Follow, Phase, Plane, Save
from elasticjob.trainer.link.address import SLOT, Way
from elasticjob.trainer.link.master import MasterClient, MasterError
from elasticjob.trainer.servers.link import BEAT, PAUSE, STOPS, Link, log

SAVE_AGAIN: Final = 1.0
"""Seconds until the last checkpoint is asked for again: none is begun while another is written."""


class Following(Link):
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
    def last_checkpoint(self) -> int:
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

    def is_saved(self, restored: int, attend: Callable[[], bool], wanted: Callable[[], bool]) -> bool:
        """When a loop is over: have the servers save what is there, for as long as that is `wanted`.

        `attend` takes part in changes, and is False if this worker is to leave. Returns False if values went
        back to a checkpoint since `restored` was read: the datasets did, too, and there is more to do.
        """
        goes_on = attend()
        before = max(self.last_checkpoint, self.saving)  # one that is being written lacks the last steps
        while goes_on and wanted() and self.last_checkpoint <= before and self.restored == restored:
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
