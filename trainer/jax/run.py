"""One worker's part in the training: its place in the records, what it counts and reports."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from elasticjob.api.rpc.permutation import key_of, place
from elasticjob.trainer.jax.membership import Membership
from elasticjob.trainer.jax.reports import Reports
from elasticjob.trainer.jax.saving import Checkpoints
from elasticjob.trainer.link.channel import Advance
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.records import record
from elasticjob.trainer.records.sampler import ENDLESS, Position, Sampler, Window
from elasticjob.trainer.shards import Dataset

log = logging.getLogger("elasticjob")

OnChange = Callable[[int, int, tuple[str, ...]], object]
"""Is told the round, the number of workers, and the nodes that were lost before it."""


class Run:
    """The training of one worker: `Elastic` and `Step` are what a script sees of it."""

    def __init__(
        self,
        state: Any,
        data: Dataset,
        *,
        batch: int,
        checkpoint: str | None,
        save_every: int,
        on_change: OnChange | None,
        environment: Mapping[str, str],
    ) -> None:
        self.data, self.batch = data, batch
        self.line, self.reports = Line(environment), Reports()
        self.membership = Membership(state, self.line, Checkpoints(checkpoint) if checkpoint else None)
        self._save_every, self._on_change = save_every, on_change
        self._record = record.from_environment(environment)
        self.sampler = Sampler(data.size, batch, 1)

    @property
    def left(self) -> int:
        """The number of steps that are left."""
        return self.sampler.steps_left(self.membership.done.position, self.data.epochs or ENDLESS)

    def begin(self) -> None:
        """Enter the first world."""
        self.membership.begin()
        self._cut()
        self.sampler.check(self.membership.done.position)

    def at_step(self) -> None:
        """Be between two steps: save if it is time, end the world if all agreed to."""
        membership = self.membership
        if membership.done.step and membership.done.step % self._save_every == 0:
            membership.save()
        if membership.boundary and self.left:
            membership.next()
        if membership.changed:
            membership.changed = False
            self._cut()
            self.reports.enter()
            if self._on_change is not None:
                at = membership.peers.place
                self._on_change(at.round, at.size, at.lost)

    def finish(self) -> None:
        """After the last step: report, save the last checkpoint."""
        self._report(0.0, last=True)
        self.line.say(Phase.ENDED)
        self.membership.save()

    def leave(self, *, ended: bool) -> None:
        """After a `break` of the script, or an exception: report and save the steps till then."""
        self._report(0.0)
        self.membership.save()

    def numbers(self, epoch: int, places: range) -> np.ndarray[Any, Any]:
        """Return the numbers of the records at `places` of an epoch's order."""
        if not self.data.shuffle:
            return np.arange(places.start, places.stop)
        key = key_of(self.data.seed, self.data.name, epoch)
        return np.array([place(each, self.data.size, key) for each in places])

    def count(self, window: Window, position: Position, loss: float, boundary: bool, began: float) -> None:
        """Count a step as done; `boundary`: this world ends with it."""
        membership, before = self.membership, self.membership.done
        membership.done = before.then(position, len(window.places), loss)
        membership.boundary = boundary
        self._after_step(before, len(window.places), time.monotonic() - began)

    def repair(self, number: int, error: str) -> bool:
        """Form the next world after a loss in step `number`; return whether a survivor has finished it."""
        before = self.membership.done
        self.membership.next(error)
        if self.membership.done.step < number:
            return False
        self._after_step(before, 0, 0.0)
        return True

    def _after_step(self, before: Any, records: int, seconds: float) -> None:
        done, peers = self.membership.done, self.membership.peers
        now = time.monotonic()
        self.line.say(Phase.OUTSIDE, step=done.step, reduced=now, records=records)
        if self._record and peers.rank == 0:
            self._record.add(peers.place.round, peers.size, before, done)
        if self.reports.step(now):
            self._report(seconds, standstill=self.reports.standstill(now))

    def _report(self, seconds: float, *, standstill: float | None = None, last: bool = False) -> None:
        if self.line.is_alone:
            return
        progress = self.reports.progress(
            self.membership.done,
            left=self.left,
            records=self.data.size,
            standstill=standstill,
        )
        round_ = self.membership.peers.place.round
        self.line.send(Advance(round=round_, progress=progress, seconds=seconds, ended=last))

    def _cut(self) -> None:
        """Cut steps into as many parts as the job may have workers."""
        self.sampler = Sampler(self.data.size, self.batch, self.membership.peers.place.batch_slots)
