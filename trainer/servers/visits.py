"""The loop over the shards of a dataset, for a worker whose servers come, go, move and are lost.

A visit is one shard that was dealt to this worker. When values go back to a checkpoint, so do the datasets:
the shard is dealt anew, from further back, and the visit is over. So it is when the master has taken this
process for lost meanwhile, and has given the shard to another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from elasticjob.trainer.link.address import Way
from elasticjob.trainer.servers.following import Following
from elasticjob.trainer.servers.link import Leaving, log
from elasticjob.trainer.shards import Dataset, Shard, Shards

SILENT: Final = 3.0
"""Seconds between two looks after which the master may have taken this process for lost."""


class Visits:
    """The shards of `dataset` in turn, until all are counted; with `save_every`, the end is saved.

    A loop that was left by `break` is saved at the end of the `with` block, by whichever worker left it.
    `attend` takes part in changes of the servers, until there are some with values. See `Following` for
    `prepare`, `finish` and `abandon`. A worker that is told to leave gets no more.
    """

    def __init__(
        self,
        dataset: Dataset,
        way: Way,
        attend: Callable[[], object],
        *,
        save_every: float | None,
        prepare: Callable[[int, tuple[str, ...]], None] | None = None,
        finish: Callable[[int], None] | None = None,
        abandon: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dataset, self._way, self._attend = dataset, way, attend
        self._save_every, self.clock = save_every, clock
        self._saved, self._is_open, self._unfinished = clock(), False, False
        self.shards, self._leaving = Shards(dataset, way=way), Leaving()
        self.following = Following(
            prepare=prepare, finish=finish, flush=lambda: self.shards.flush(), abandon=abandon, way=way
        )

    def __enter__(self) -> Self:
        self.following.__enter__()
        self._leaving.hear()
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        try:
            if error is None and self._unfinished and self._save_every is not None:
                self._save_at_break()
        finally:
            self.shards.__exit__(kind, error, trace)
            self.following.__exit__(kind, error, trace)
            self._leaving.close()

    def __iter__(self) -> Iterator[Visit]:
        self.refuse_outside()
        now = self.following.restored
        while self.goes_on():
            before, shard = now, self.shards.next_beside(self.attend)
            if shard is not None:
                self.attend()
            now = self.following.restored
            if shard is None:
                if self.following.is_saved(before, self.attend, self._saves_the_end):
                    self._unfinished = False
                    return
                self.shards.close()  # the end was lost with servers: there is more to do again
                self.shards = Shards(self._dataset, way=self._way)
            elif before == now or self.shards.holds_beside(shard, self.goes_on):
                self._unfinished = True
                yield Visit(self, shard, now, self.clock())

    def refuse_outside(self) -> None:
        """Raise RuntimeError outside of the `with` block: nobody would ever tell which servers there are."""
        if not self._is_open:
            raise RuntimeError("train within a `with` block: `with Store(…) as store:`, or of Servers")

    def goes_on(self) -> bool:
        """Whether this worker was not told to leave."""
        return not self._leaving.is_set()

    def attend(self) -> bool:
        """Take part in changes while others have the last shards; False if this worker is to leave."""
        if self._leaving.is_set():
            return False
        self._attend()
        return True

    def _saves_the_end(self) -> bool:
        return self._save_every is not None and self.following.is_chief

    def _save_at_break(self) -> None:
        restored = self.following.restored
        if not self.following.is_saved(restored, self.attend, lambda: True):
            log.warning("values went back to a checkpoint when this worker left: its last steps are in none")

    def save(self) -> None:
        """Ask for a checkpoint soon."""
        self._saved = self.clock()
        self.following.save()

    def save_if_due(self) -> None:
        """Ask for a checkpoint, on the first worker, if it is time."""
        if self._save_every is not None and self.clock() - self._saved >= self._save_every:
            self._saved = self.clock()
            if self.following.is_chief:
                self.following.save()


@dataclass
class Visit:
    """One shard, dealt after values were `restored`; this worker was heard of when it last `looked`."""

    visits: Visits
    shard: Shard
    restored: int
    looked: float

    def holds(self) -> bool:
        """Whether the shard is still this worker's, as far as is known."""
        before, self.looked = self.looked, self.visits.clock()
        silent = self.looked - before > SILENT
        return not silent or self.visits.shards.holds_beside(self.shard, self.visits.goes_on)

    def goes_on(self) -> bool:
        """Take part in changes; return whether the rest of the shard is still this worker's."""
        return self.visits.goes_on() and self.holds() and self.visits.attend() and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether values and datasets went back to a checkpoint since."""
        return self.visits.following.restored != self.restored

    def applied(self, records: int) -> None:
        """Report that so many records of the shard are applied."""
        self.visits.shards.applied(self.shard, records)

    def done(self) -> None:
        """Report that all of them are."""
        self.visits.shards.done(self.shard)
