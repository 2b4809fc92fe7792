"""One worker's part in the training: what each step counts, reports and repairs.

All workers are at the same place of the script when they meet in a collective: a step that broke is repaired
inside its `with` block, so that `step.done` is the same everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.checkpoint.flash import Flash, Form
from elasticjob.trainer.link.address import SLOT
from elasticjob.trainer.link.channel import Advance
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop.copies import Copies
from elasticjob.trainer.loop.membership import Membership
from elasticjob.trainer.loop.reading import Reading
from elasticjob.trainer.loop.reports import Reports
from elasticjob.trainer.loop.world import State, W
from elasticjob.trainer.records import record
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.sampler import Position

KEEP: Final = 2  # checkpoints in storage
S = TypeVar("S", bound=State[Any])
R = TypeVar("R", bound=Reading)


class Run(Generic[W, S, R]):
    """The training of one worker, of which a framework's `Elastic` and `Step` show the script a part."""

    def __init__(
        self,
        state: S,
        reading: R,
        reports: Reports,
        copies: Copies,
        membership: Membership[W],
        line: Line,
        environment: Mapping[str, str],
    ) -> None:
        self.state, self.reading, self.reports = state, reading, reports
        self.copies, self.membership, self.line = copies, membership, line
        self.ended = False
        self._before, self._began = Done(), 0.0
        self._records = 0  # that this worker takes in the present step
        self._record = record.from_environment(environment)

    @property
    def peers(self) -> W:
        """The workers of the present world."""
        return self.membership.peers

    @property
    def left(self) -> int:
        """The number of steps that are left."""
        return self.reading.left(self.peers.place)

    def note_step(self, records: int) -> None:
        """Note that a step begins, in which this worker takes so many records."""
        self._began, self._before, self._records = time.monotonic(), self.state.done, records

    def count_step(self, records: int, position: Position, loss: float, boundary: bool) -> None:
        """Count a step of `records` records as done; `boundary`: this world ends with it."""
        self.state.done = self.state.done.then(position, records, loss)
        self.membership.boundary = boundary

    def after_step(self) -> None:
        """Report and record a step that is done."""
        done = self.state.done
        self.line.say(Phase.OUTSIDE, step=done.step, reduced=time.monotonic(), records=self._records)
        if self._record and self.peers.rank == 0:
            self._record.add(self.peers.place.round, self.peers.size, self._before, done)
        self.report_step()

    def repair(self, number: int, error: str) -> bool:
        """Form the next world after a loss in step `number`; return whether a survivor has finished it."""
        self.membership.next(error)
        if self.state.done.step < number:
            return False
        self.after_step()
        return True

    def report(self, metrics: Mapping[str, Any]) -> None:
        """Add metrics to the progress in the job's status."""
        self.reports.add(metrics)
        if not self.line.is_alone and self.reading.begun:
            self.line.send(Advance(round=self.peers.place.round, progress=self._progress(None)))

    def report_step(self, *, last: bool = False, at_once: bool = False) -> None:
        """Report progress, if it is time."""
        now = time.monotonic()
        if not self.reports.step(now, at_once=last or at_once) or self.line.is_alone:
            return
        self.line.send(
            Advance(
                round=self.peers.place.round,
                progress=self._progress(self.reports.standstill(now)),
                seconds=now - self._began,
                ended=last,
            )
        )

    def _progress(self, standstill: float | None) -> Progress:
        return self.reports.progress(
            self.state.done,
            left=self.left,
            records=self.reading.sampler(self.peers.place).records,
            standstill=standstill,
        )


def copies_of(
    state: State[Any],
    form: Form,
    line: Line,
    environment: Mapping[str, str],
    *,
    checkpoint: str | None,
    save_every: int,
    memory_every: int,
    together: int = 1,
    clones: bool = False,
    older: Callable[[], bool] = bool,
) -> Copies:
    """Return the copies of a training's state, in memory and in `checkpoint`; without it there are none."""
    flash = Flash(checkpoint, form, keep=KEEP, environment=environment, say=line.send) if checkpoint else None
    one_of_its_node = environment.get(SLOT, "0") == "0"
    return Copies(
        state,
        flash,
        save_every=save_every,
        memory_every=memory_every,
        together=together,
        takes=one_of_its_node or together > 1,
        clones=clones,
        page=line.page,
        older=older,
    )
