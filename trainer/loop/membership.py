"""One worker's membership in worlds: the present one, and the way from one to the next.

All workers are at the same place of the script when they meet in a collective. A process that begins the
script anew gets the state of the others at the gate.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Generic

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.line import ALONE, Line
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.link.worlds import Stopped
from elasticjob.trainer.loop.copies import Copies
from elasticjob.trainer.loop.gate import Gate, begin_anew
from elasticjob.trainer.loop.reports import Reports
from elasticjob.trainer.loop.whereabouts import LOOK, At, Watch
from elasticjob.trainer.loop.world import Backend, State, W


class Membership(Generic[W]):
    """This worker among its `peers` in the present world.

    `boundary`: all agreed to end this world. `changed`: the script was not told of it yet. A framework that
    `lacks` something for another world in this process begins anew in each, from the newest copy.
    """

    def __init__(
        self,
        state: State[W],
        backend: Backend[W],
        copies: Copies,
        line: Line,
        reports: Reports,
        *,
        at_once: bool = False,
        lacks: str = "",
    ) -> None:
        self.peers = backend.peers(ALONE)
        self.boundary = self.changed = False
        self._state, self._backend, self._copies = state, backend, copies
        self._line, self._reports, self._lacks = line, reports, lacks
        self._gate = Gate(state, line, at_once=at_once)
        self._at = (At.ELSEWHERE, state.age, 0.0)
        self._watch: Watch | None = None

    @property
    def at(self) -> At:
        """Where this worker is in what all do together."""
        return self._at[0]

    @at.setter
    def at(self, at: At) -> None:
        self._at = (at, self._state.age, time.monotonic())

    def begin(self) -> None:
        """Enter the first world."""
        if not self._line.is_alone:
            self.peers.warm_up()
            self._watch = Watch(self._look)
        self._line.say(Phase.WAITING)
        place, listener = self._line.first_world()
        try:
            self._enter(place, listener, At.ELSEWHERE)
        except RuntimeError as error:
            self.survive(error)
        self._line.say(Phase.OUTSIDE)

    def next(self, error: str | None = None) -> None:
        """Leave the group and enter the next world that holds; Stopped if there is none for this worker."""
        at = At.BOUNDARY if error is None else self.at
        self._line.say(Phase.WAITING)
        if self._lacks:
            self._copies.take_before_leaving(self.peers)
            begin_anew(self._line, self.peers, f"{self._lacks}, so it begins anew")
        while True:
            ended = self.peers.place.round
            with self._line.inside():
                self._leave(broken=error is not None)
            try:
                place, listener = self._line.next_world(ended, error)
            except Stopped:
                self._copies.take_before_leaving(self.peers)
                raise
            try:
                self._enter(place, listener, at)
                return
            except RuntimeError as failed:
                if not self.peers.broken_by(failed):
                    raise
                error = str(failed)

    def broken_by(self, error: RuntimeError) -> bool:
        """Whether `error` is the loss of a peer, not the script's."""
        return not self._line.is_alone and self.peers.broken_by(error)

    def survive(self, error: RuntimeError) -> None:
        """Form the next world outside of a step; raises `error` if it is the script's."""
        if not self.broken_by(error):
            raise error
        self.next(str(error))

    def at_step(self) -> None:
        """Be at the start of a step: members without a state get it."""
        self._pass_gate()
        self._gate.newcomer = False

    def is_newcomer(self) -> bool:
        """Whether the others are at some step of a job that began before this worker; gets their state."""
        if self._gate.newcomer:
            self._pass_gate()
        return self._gate.newcomer

    def close(self) -> None:
        """Leave the group, at the end of the process."""
        if self._watch is not None:
            self._watch.close()
        self._leave()

    def _pass_gate(self) -> None:
        """Give the state to members that have none, or wait for it."""
        while self._gate.closed:
            self._line.say(Phase.WAITING)
            try:
                with self._line.inside():
                    self._gate.take(self.peers)
            except RuntimeError as error:
                if not self.broken_by(error):
                    raise
                self.next(str(error))

    def _enter(self, place: Enter, listener: socket.socket | None, at: At) -> None:
        """Form the group of `place` and agree on the state; this worker is `at` a place of the script."""
        self.peers = self._backend.peers(place)
        self._gate.closed = self.boundary = False
        self._line.guard(place.round, self.peers)
        with self._line.inside():
            self.peers.open(listener)
            self._gate.agree(self.peers, lambda: self._copies.restore(self.peers, self._pause), at)
        self._backend.enter(self.peers)
        self._reports.enter()
        self.changed = True
        os.environ.update(
            RANK=str(place.rank),
            WORLD_SIZE=str(place.size),
            MASTER_ADDR=place.address,
            MASTER_PORT=str(place.port),
        )

    def _look(self) -> None:
        """Give up a world in which another worker is at another place, after the same; in another thread."""
        (at, age, since), peers = self._at, self.peers
        if at is At.ELSEWHERE or not self._state.whole or time.monotonic() - since < LOOK:
            return
        if not peers.all_at(at, age):
            peers.abort()

    def _pause(self, seconds: float) -> None:
        """Wait outside of collectives, while storage cannot be read."""
        with self._line.inside(False):
            time.sleep(seconds)
        self.peers.check()

    def _leave(self, *, broken: bool = False) -> None:
        self._backend.leave()
        self._line.release()
        self.peers.close(broken=broken)
