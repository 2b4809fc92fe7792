"""One worker's membership in worlds: the present one, and the way from one to the next.

At a change the state goes to the memory of the host, all devices are forgotten, and the next world begins
with what its oldest member holds.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import Any, Final, NoReturn

from elasticjob.trainer.jax import coordination
from elasticjob.trainer.jax.coordination import Lost, Services
from elasticjob.trainer.jax.peers import Peers
from elasticjob.trainer.jax.saving import Checkpoints
from elasticjob.trainer.jax.state import form_of, on_device, on_host, packed, unpacked
from elasticjob.trainer.link.channel import Behind, Enter
from elasticjob.trainer.link.line import ALONE, Line
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.link.worlds import Stopped
from elasticjob.trainer.records.done import Done

log = logging.getLogger("elasticjob")

NOTHING: Final = -1  # the step of a worker that holds no state of the job
FOREVER: Final = 3600.0  # seconds of one sleep


class Membership:
    """This worker among its `peers`; `state` and `done` are what it holds of the job.

    `boundary`: all agreed to end this world. `changed`: the script was not told of it yet.
    """

    def __init__(self, state: Any, line: Line, checkpoints: Checkpoints | None) -> None:
        self.state, self.done = state, Done()
        self.peers = Peers(ALONE)
        self.boundary = self.changed = False
        self._line, self._checkpoints = line, checkpoints
        self._services = Services()
        self._holds = False
        self._lacks = "" if line.is_alone else coordination.missing()
        if self._lacks:
            log.warning(
                "%s: a change of the world starts workers again, from the newest checkpoint%s",
                self._lacks,
                "" if checkpoints else ", of which there is none: give checkpoint=",
            )

    def begin(self) -> None:
        """Enter the first world."""
        on_host(self.state)  # its errors are the user's
        self._line.say(Phase.WAITING)
        place, listener = self._line.first_world()
        try:
            self._enter(place, listener)
        except Lost as lost:
            self.next(str(lost))
        self._line.say(Phase.OUTSIDE)

    def next(self, error: str | None = None) -> None:
        """Leave this world, broken if there is an `error`, for the next that holds. Stopped without one."""
        self._line.say(Phase.WAITING)
        while True:
            ended, began = self.peers.place.round, time.monotonic()
            host = on_host(self.state)
            if self._lacks:
                self._start_again(host)
            self.state = host
            self._leave()
            left = time.monotonic()
            try:
                place, listener = self._line.next_world(ended, error)
            except Stopped:
                self.save()
                raise
            told = time.monotonic()
            try:
                self._enter(place, listener)
            except Lost as lost:
                error = str(lost)
                continue
            log.info(
                "round %d of %d: left in %.2f s, told in %.2f s, entered in %.2f s",
                place.round,
                place.size,
                left - began,
                told - left,
                time.monotonic() - told,
            )
            return

    def save(self) -> None:
        """Write a checkpoint, on the main worker."""
        if self._checkpoints is not None and self.peers.rank == 0 and self._holds:
            self._checkpoints.save(on_host(self.state), self.done)

    def close(self) -> None:
        """Leave, at the end of the process."""
        self._leave()
        self._services.close()

    def _enter(self, place: Enter, listener: socket.socket | None) -> None:
        """Meet the others of `place`, and agree on the state."""
        self.peers = Peers(place)
        self.boundary = False
        self._line.guard(place.round, self.peers)
        with self._line.inside():
            host = on_host(self.state)
            self.peers.open(listener, self._services)
            host, self.done = self._agreed(host)
        self.state = on_device(host)
        self._services.stop_unused()
        self._holds = self.changed = True

    def _agreed(self, host: Any) -> tuple[Any, Done]:
        """Return the newest state that a worker holds, the same on all: of several the oldest worker's.

        If no worker holds one, the job begins: with the newest checkpoint, or with rank 0's own.
        """
        peers, form = self.peers, form_of(host)
        rows = peers.gather([self.done.step if self._holds else NOTHING, form])
        others = [rank for rank, (_, theirs) in enumerate(rows) if theirs != form]
        if others:
            raise TypeError(f"the state of worker {others[0]} has another form than worker {peers.rank}'s")
        newest = max(step for step, _ in rows)
        source = next(rank for rank, (step, _) in enumerate(rows) if step == newest)
        done = self.done
        if newest == NOTHING and peers.rank == source and self._checkpoints is not None:
            host, done = self._checkpoints.newest(host) or (host, done)
        if newest != NOTHING and all(step == newest for step, _ in rows):
            return host, done  # no newcomers
        return unpacked(peers.tell(packed(host, done), source), host)

    def _leave(self) -> None:
        self._line.release()
        with self._line.inside():
            self.peers.close()

    def _start_again(self, host: Any) -> NoReturn:
        """Save, and wait to be killed: the next process enters the next world, and reads the checkpoint."""
        if self._checkpoints is not None and self._holds:
            self._checkpoints.save(host, self.done)
        self._line.send(Behind(round=self.peers.place.round, reason=f"{self._lacks}, so it begins anew"))
        while True:
            time.sleep(FOREVER)
