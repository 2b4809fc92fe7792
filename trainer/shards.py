"""Shards of a dataset on lease from the job's master, for any worker process: plain Python, without torch.

    with Shards(Dataset(name="text", size=1_000_000, shard=1_000, epochs=3)) as shards:
        for shard in shards:            # the next ones are fetched meanwhile
            train(shard.records)
        # asking for the next shard reports the last one as done; leaving by an error reports it as failed

Every record counts once per epoch: the result of a worker that was lost meanwhile is refused, and its shard
is dealt again with a larger `shard.lease`: of several outputs of one shard, keep that of the largest lease.
While the master is away, work goes on with what is at hand; results are kept until they are saved.

Raises Incomplete when nothing is left but poisoned shards, NoMaster in a process that no agent started, and
MasterError if the master is away for a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from numbers import Integral
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from elasticjob.api.rpc.message import Request, decode_as
from elasticjob.api.rpc.shards import (
    Close,
    Consumer,
    Dataset,
    Dealt,
    Held,
    Lease,
    Open,
    Outcome,
    Partition,
    Poisoned,
    Result,
    Saved,
    Shard,
)
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.link.address import SLOT, NoMaster, Way, way_from
from elasticjob.trainer.link.master import MasterClient, MasterError, Stale, Unreachable

__all__ = [
    "Dataset",
    "Incomplete",
    "IndexClient",
    "MasterError",
    "NoMaster",
    "Partition",
    "Shard",
    "Shards",
    "Way",
]

log = logging.getLogger("elasticjob.shards")

Answer = TypeVar("Answer")
Record = TypeVar("Record")

AHEAD: Final = 2  # shards fetched beyond the one at work
RENEW_EVERY: Final = 5.0  # seconds between reports of mere progress
LOOK_AGAIN: Final = 2.0  # seconds without the master until its address is read again
GLANCE: Final = 0.05  # seconds between two looks at something else, while the next shard is waited for
FAREWELL: Final = 30.0  # seconds that the last results may take at the end of the process


class Incomplete(Exception):
    """Nothing is left but shards that failed too often: the dataset is not complete."""

    def __init__(self, dataset: str, poisoned: tuple[Poisoned, ...]) -> None:
        more = f"; {len(poisoned) - 3} more" if len(poisoned) > 3 else ""
        listed = "; ".join(map(str, poisoned[:3]))
        super().__init__(
            f"dataset {dataset} is not complete, {len(poisoned)} shards are poisoned: {listed}{more}"
        )
        self.poisoned = poisoned


class Shards:
    """Iterates over the shards of a dataset that the master deals to this process.

    `worker` tells several readers of one worker process apart. Shards are fetched `ahead`. A reader `yields`
    if a loop takes from it and others in turn: it ends when all shards are dealt and another one of this
    worker still has some. Also a context: an error that leaves it is reported as the failure of the shard at
    work.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        ahead: int = AHEAD,
        worker: str = "",
        way: Way | None = None,
        yields: bool = False,
    ) -> None:
        self.dataset = as_sent(dataset)
        self._ahead, self._worker, self._way, self._yields = ahead, worker, way, yields
        self._started: _Feed | None = None
        self._current: Shard | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self._current is not None:
            self.fail(self._current, error)
        self.close()

    def __iter__(self) -> Iterator[Shard]:
        while (shard := self.next()) is not None:
            yield shard
            if self._current is shard:
                self.done(shard)

    def next(self, *, pauses: bool = False) -> Shard | None:
        """Return the next shard, None if there is none any more; waits while others may return theirs.

        With `pauses` also None instead of that wait, once. Raises Incomplete if some are poisoned, and
        MasterError if the master is away for too long.
        """
        self._current = self._feed().next(pauses=pauses)
        return self._current

    def next_beside(self, attend: Callable[[], bool]) -> Shard | None:
        """Return the next shard as `next` does, and call `attend` now and then until it is there.

        For workers that have to take part in something else while others have the last shards. None, too,
        once `attend` returns False.
        """
        asked: Future[Shard | None] = Future()
        threading.Thread(target=self._ask_for, args=(asked,), name="elasticjob-next", daemon=True).start()
        while not wait([asked], GLANCE).done:
            if not attend():
                return None
        return asked.result()

    def _ask_for(self, asked: Future[Shard | None]) -> None:
        try:
            asked.set_result(self.next())
        except Exception as error:  # told to who waits
            asked.set_exception(error)

    def read(self, shard: Shard) -> None:
        """Note that all records of the shard are at hand: the next ones may be needed before it is done."""
        self._feed().read(shard)

    def done(self, shard: Shard) -> None:
        """Report that the records of the shard are applied."""
        self._report(Outcome(number=shard.number, lease=shard.lease))

    def fail(self, shard: Shard, error: BaseException | str) -> None:
        """Report that the shard failed; it is dealt again, later."""
        said = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        self._report(
            Outcome(number=shard.number, lease=shard.lease, error=(said or "no reason given")[:2048])
        )

    def applied(self, shard: Shard, records: int) -> None:
        """Report that so many records of the shard are applied, which renews the lease.

        They count: if this worker is lost, only the others are dealt again.
        """
        self._feed().applied(shard, records)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Renew the leases meanwhile: what is under way may take longer than they last."""
        feed = self._feed()
        feed.suspended = True
        try:
            yield
        finally:
            feed.suspended = False

    def records(self, read: Callable[[Shard], Iterable[Record]], *, unused: int = 0) -> Iterator[Record]:
        """Yield the records that `read` returns of each shard, one by one.

        A shard is done when its last record is handed out and `unused` more, which the loop may not have used
        yet; or earlier, before this waits for the next shard. While the loop takes no record, the leases are
        renewed.
        """
        feed, count = self._feed(), 0
        behind: deque[tuple[Shard, int]] = deque()
        try:
            while (shard := self._next_of(behind)) is not None:
                for record, is_last in with_last(read(shard)):
                    count += 1
                    if is_last:
                        behind.append((shard, count + unused))
                        feed.read(shard)
                    while behind and behind[0][1] <= count:
                        self.done(behind.popleft()[0])
                    feed.suspended = True
                    yield record
                    feed.suspended = False
                if not any(each is shard for each, _ in behind) and self._current is shard:
                    self.done(shard)  # it has no records
        except Exception:
            self._done_with(behind)  # the error is the present shard's, these were handed out
            raise
        finally:
            feed.suspended = False

    def _next_of(self, behind: deque[tuple[Shard, int]]) -> Shard | None:
        """Return the next shard; report those `behind` before waiting for it: others may wait for them."""
        if not self._feed().ready:
            self._done_with(behind)
        shard = self.next(pauses=bool(behind))
        if shard is None and behind:
            self._done_with(behind)
            shard = self.next()
        return shard

    def _done_with(self, behind: deque[tuple[Shard, int]]) -> None:
        while behind:
            self.done(behind.popleft()[0])

    def flush(self, timeout: float = FAREWELL) -> None:
        """Return when the master knows what was reported so far, progress too. Raises TimeoutError."""
        if self._started is not None:
            self._started.flush(timeout)

    def holds(self, shard: Shard, timeout: float = FAREWELL) -> bool:
        """Ask the master whether the shard is still this process's: after a pause it may be another's.

        Raises TimeoutError if the master does not answer.
        """
        feed = self._feed()
        feed.flush(timeout)
        return feed.holds(shard)

    def holds_beside(self, shard: Shard, attend: Callable[[], bool]) -> bool:
        """Ask as `holds` does until the master answers; call `attend` before each try, False once it is."""
        while attend():
            with suppress(TimeoutError):  # the master is away, and may know of another owner
                return self.holds(shard)
        return False

    def close(self, timeout: float = FAREWELL) -> None:
        """Send the last results, and wait until they are saved; return what is not done."""
        feed, self._started, self._current = self._started, None, None
        if feed is not None and feed.process == os.getpid():
            feed.close(timeout)

    def _report(self, outcome: Outcome) -> None:
        if self._current is not None and self._current.lease == outcome.lease:
            self._current = None
        self._feed().finish(outcome)

    def _feed(self) -> _Feed:
        """Return the feed of this process: a fork gets its own."""
        if self._started is None or self._started.process != os.getpid():
            way = self._way or way_from(os.environ)
            slot = os.environ.get(SLOT, "0")
            consumer = Consumer(
                node=way.node or f"process-{os.getpid()}",
                worker=".".join(filter(None, (slot, self._worker))),
                life=time.monotonic_ns() // 1000,
                incarnation=way.incarnation,
            )
            look = (lambda: way) if self._way else (lambda: way_from(os.environ))
            self._started = _Feed(self.dataset, consumer, look, self._ahead, self._yields)
            atexit.register(self._end)
        return self._started

    def _end(self) -> None:
        """At the end of the process: a script that ended by an error failed on the shard at work."""
        error = getattr(sys, "last_value", None)
        if isinstance(error, Exception) and self._current is not None and self._started is not None:
            self.fail(self._current, error)
        self.close()


class IndexClient:
    """Gives one record after another: `while (index := client.fetch()) is not None: …; client.done()`.

    Records are reported by their number, the oldest first: after a step, `done(batch)`.
    """

    def __init__(
        self, dataset: Dataset, *, ahead: int = AHEAD, worker: str = "", way: Way | None = None
    ) -> None:
        self._shards = Shards(dataset, ahead=ahead, worker=worker, way=way)
        self._open: list[_Read] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and self._open:
            self._shards.fail(self._open[0].shard, error)
        self.close()

    def __iter__(self) -> Iterator[int]:
        while (index := self.fetch()) is not None:
            yield index

    @property
    def shard(self) -> Shard | None:
        """The shard of the record that was fetched last."""
        return self._open[-1].shard if self._open else None

    def fetch(self) -> int | None:
        """Return the next record, None if there is none any more.

        Also None if all are dealt, and some that were fetched here are not `done`: a last batch is not full.
        Report them: the others wait for that. Another `fetch` waits for what the others may return.
        """
        if not self._open or self._open[-1].left == 0:
            shard = self._shards.next(pauses=bool(self._open))
            if shard is None:
                return None
            self._open.append(_Read(shard, iter(shard.records), len(shard)))
        read = self._open[-1]
        read.left -= 1
        if not read.left:
            self._shards.read(read.shard)
        return next(read.indices)

    def done(self, count: int = 1) -> None:
        """Report that the `count` oldest records that were fetched are applied."""
        while count and self._open:
            read = self._open[0]
            took = min(count, len(read.shard) - read.left - read.done)
            if not took:
                break
            read.done, count = read.done + took, count - took
            if read.done == len(read.shard):
                self._shards.done(self._open.pop(0).shard)
            else:
                self._shards.applied(read.shard, read.done)
        if count:
            raise ValueError(f"{count} more records are reported as done than were fetched")

    def close(self, timeout: float = FAREWELL) -> None:
        """Send the last results, and wait until they are saved; return what is not done."""
        self._open.clear()
        self._shards.close(timeout)


@dataclass
class _Read:
    shard: Shard
    indices: Iterator[int]
    left: int
    done: int = 0


@dataclass
class _Taken:
    """A lease of ours: how much of it is applied, as known here and as reported, and how it ended."""

    shard: Shard
    used: int = 0
    reported: int = 0
    read: bool = False  # to the end
    outcome: Outcome | None = None

    @property
    def held(self) -> Held:
        return Held(number=self.shard.number, lease=self.shard.lease, used=self.used)


@dataclass
class _Unsaved:
    """A result that the master has counted in change `mark` of `term`."""

    outcome: Outcome
    mark: int
    term: int


@dataclass
class _Feed:
    """The conversation with the master, in a thread of its own; the worker takes from a queue."""

    dataset: Dataset
    consumer: Consumer
    look: Callable[[], Way]
    ahead: int
    yields: bool = False
    patience: float = 900.0
    process: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self._queue: SimpleQueue[Shard | Exception | _Pause | None] = SimpleQueue()
        self._taken: dict[int, _Taken] = {}
        self._unsaved: list[_Unsaved] = []
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news, self._room, self._again = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._opening = asyncio.Lock()
        self._flushed: list[threading.Event] = []
        self._openings, self._number = 0, 0
        self.suspended = False  # the loop that takes the records does something else: no fault of this reader
        self._closing = False
        self._raised: Exception | None = None
        self._ended, self._over = False, False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="elasticjob-shards", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether `next` has something at hand."""
        return self._ended or not self._queue.empty()

    def next(self, *, pauses: bool = False) -> Shard | None:
        """Return the next shard that is still ours, None at the end, or at a pause."""
        while True:
            if self._ended:
                return None
            if self._raised is not None and self._queue.empty():
                raise self._raised
            found = self._queue.get()
            if isinstance(found, Exception):
                self._raised = found
                raise found
            if found is None:
                self._ended = True
                return None
            if isinstance(found, _Pause):
                if pauses:
                    return None
                continue
            with self._lock:
                if found.lease in self._taken:
                    return found

    def finish(self, outcome: Outcome) -> None:
        """Note a result, to be sent at once."""
        with self._lock:
            taken = self._taken.get(outcome.lease)
            if taken is not None:
                taken.outcome = outcome
        if taken is None:
            log.warning(
                "shard %d was given to another worker meanwhile: its result does not count", outcome.number
            )
        self._wake()

    def read(self, shard: Shard) -> None:
        """Note that a shard is read to the end: it takes no room any more."""
        with self._lock:
            if (taken := self._taken.get(shard.lease)) is not None:
                taken.read = True
        self._call_soon(self._room.set)
        if self._queue.empty():
            self._call_soon(self._again.set)

    def applied(self, shard: Shard, records: int) -> None:
        """Note progress, to be sent now and then."""
        with self._lock:
            if (taken := self._taken.get(shard.lease)) is not None:
                taken.used = shard.used + records

    def holds(self, shard: Shard) -> bool:
        """Whether the lease of a shard is ours, as far as is known here."""
        with self._lock:
            return shard.lease in self._taken

    def flush(self, timeout: float) -> None:
        """Return when all that was said so far has reached the master, and what it says is known here.

        Raises what has ended the conversation, at once: nobody would ever tell.
        """
        told = threading.Event()
        with self._lock:
            if not self._over:
                self._flushed.append(told)
            waits = self._taken and not self._over
        self._wake()
        if waits and not told.wait(timeout):
            raise TimeoutError(f"the master did not take the results of {self.dataset.name} in {timeout:g} s")
        if self._error is not None:
            raise self._error

    def close(self, timeout: float) -> None:
        """Send the rest and end the thread."""
        self._closing = True
        self._wake()
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("the last results of dataset %s did not reach the master", self.dataset.name)

    def _wake(self) -> None:
        self._call_soon(self._news.set)

    def _call_soon(self, do: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the thread has ended
                self._loop.call_soon_threadsafe(do)

    def _run(self) -> None:
        try:
            asyncio.run(self._converse())
        except Exception as error:  # told to the worker, which waits for it
            self._error = error
            self._queue.put(error)
        finally:
            with self._lock:
                self._over = True
            for told in self._flushed:
                told.set()

    async def _converse(self) -> None:
        self._loop = asyncio.get_running_loop()
        way = self.look()
        async with MasterClient(way.address, token=way.token()) as self._master:
            await self._open(0)
            leasing = asyncio.create_task(self._lease())
            leasing.add_done_callback(lambda _: self._news.set())
            try:
                await self._report(leasing)
            finally:
                leasing.cancel()
                with suppress(asyncio.CancelledError, MasterError):
                    await leasing

    async def _lease(self) -> None:
        """Keep `ahead` shards in the queue, until there are none."""
        pauses = True
        while True:
            while len(self._taken) - self._read() > self.ahead:
                self._room.clear()
                await self._room.wait()
            dealt = await self._dealt(pauses=pauses)
            if dealt is None:
                continue
            pauses = not dealt.pause
            if dealt.pause:
                self._queue.put(_Pause())
            for shard in dealt.shards:
                with self._lock:
                    new = shard.lease not in self._taken
                    self._taken.setdefault(shard.lease, _Taken(shard, shard.used, shard.used))
                if new:
                    self._queue.put(shard)
            self._settle(dealt.term, dealt.durable)
            if dealt.end:
                self._queue.put(Incomplete(self.dataset.name, dealt.poisoned) if dealt.poisoned else None)
                return

    async def _dealt(self, *, pauses: bool) -> Dealt | None:
        """Return the master's answer; None if the question has changed meanwhile."""
        self._again.clear()
        asking = asyncio.create_task(
            self._ask(
                lambda: Lease(
                    consumer=self.consumer,
                    dataset=self.dataset.name,
                    want=self.ahead + 1,
                    has=tuple(self._taken),
                    yields=self.yields,
                    read=self._read(),
                    pauses=pauses,
                )
            )
        )
        again = asyncio.create_task(self._again.wait())
        try:
            await asyncio.wait((asking, again), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            for task in (asking, again):
                task.cancel()
            await asyncio.gather(asking, again, return_exceptions=True)

    def _read(self) -> int:
        """Return how many shards are read to the end and not done."""
        with self._lock:
            return sum(taken.read for taken in self._taken.values())

    async def _report(self, leasing: asyncio.Task[None]) -> None:
        """Send results at once and progress now and then; at the end wait until they are saved."""
        every = min(RENEW_EVERY, self.dataset.deadline / 3 or RENEW_EVERY)
        while True:
            renews = False
            try:
                async with asyncio.timeout(every):
                    await self._news.wait()
            except TimeoutError:
                renews = self.suspended
            self._news.clear()
            flushed = tuple(self._flushed)
            if leasing.done() and not leasing.cancelled() and (error := leasing.exception()):
                raise error
            await self._send(renews=renews or bool(flushed))
            for told in flushed:
                told.set()
                self._flushed.remove(told)
            if self._closing and not self._finished():
                break
        if self._unsaved:
            await self._send(saved=True)
        await self._master.call(Close(consumer=self.consumer, dataset=self.dataset.name), patience=LOOK_AGAIN)

    async def _send(self, *, saved: bool = False, renews: bool = False) -> None:
        """Send what there is to say; forget what is saved."""
        said: list[_Taken] = []

        def result() -> Result | None:
            said[:] = self._finished()
            moved = self._moved(all_of_them=renews)
            if not (said or moved or saved):
                return None
            return Result(
                consumer=self.consumer,
                dataset=self.dataset.name,
                outcomes=tuple(taken.outcome for taken in said if taken.outcome),
                progress=tuple(moved),
                saved=saved,
            )

        answer = await self._ask_maybe(result)
        if answer is not None:
            self._counted([each for each in said if each.shard.lease not in answer.lost], answer)
            self._lost(answer.lost)

    async def _ask(self, make: Callable[[], Request[Answer]]) -> Answer:
        answer = await self._ask_maybe(make)
        assert answer is not None  # a request is always made
        return answer

    async def _ask_maybe(self, make: Callable[[], Request[Answer] | None]) -> Answer | None:
        """Return the answer to what `make` returns now; a master that does not know us is told who we are."""
        while True:
            openings = self._openings
            if (request := make()) is None:
                return None
            try:
                return await self._call(request)
            except Stale:
                await self._open(openings)

    async def _open(self, openings: int) -> None:
        """Open the dataset, with all that a new master may lack; unless that was done since."""
        async with self._opening:
            while openings == self._openings:
                self._number += 1
                with suppress(Stale):  # a new master wants a request that was made for it
                    await self._open_once()

    async def _open_once(self) -> None:
        with self._lock:
            taken = list(self._taken.values())
            said = [each for each in taken if each.outcome]
            held = tuple(each.held for each in taken if not each.outcome)
        kept = tuple(each.outcome for each in self._unsaved)
        answer = await self._call(
            Open(
                consumer=self.consumer,
                dataset=self.dataset,
                held=held,
                outcomes=(*kept, *(each.outcome for each in said if each.outcome)),
                opening=self._number,
            )
        )
        self._openings += 1
        lost = set(answer.lost)
        for each in [each for each in self._unsaved if each.term != answer.term]:
            each.mark, each.term = answer.mark, answer.term
            if each.outcome.lease in lost:
                log.warning("the result of shard %d was lost with an earlier master", each.outcome.number)
                self._unsaved.remove(each)
        self._counted([each for each in said if each.shard.lease not in lost], answer)
        self._lost(answer.lost)

    async def _call(self, request: Request[Answer]) -> Answer:
        """Return the answer, also of a master that has moved."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience
        while True:
            try:
                return await self._master.call(request, patience=LOOK_AGAIN)
            except Unreachable:
                if loop.time() > deadline:
                    raise
                with suppress(OSError, *UNREADABLE):
                    self._master.look_for((self.look().address,))

    def _finished(self) -> list[_Taken]:
        with self._lock:
            return [taken for taken in self._taken.values() if taken.outcome]

    def _moved(self, *, all_of_them: bool) -> list[Held]:
        """Return the leases with progress that is not reported yet, or all."""
        with self._lock:
            open_ = [each for each in self._taken.values() if not each.outcome]
            moved = [each for each in open_ if each.used > each.reported or all_of_them]
            for each in moved:
                each.reported = each.used
            return [each.held for each in moved]

    def _counted(self, said: list[_Taken], answer: Saved) -> None:
        """Keep results until they are saved."""
        with self._lock:
            for taken in said:
                self._taken.pop(taken.shard.lease, None)
        self._unsaved += [_Unsaved(each.outcome, answer.mark, answer.term) for each in said if each.outcome]
        self._settle(answer.term, answer.durable)
        self._make_room()

    def _settle(self, term: int, durable: int) -> None:
        self._unsaved = [each for each in self._unsaved if each.term != term or each.mark > durable]

    def _lost(self, leases: tuple[int, ...]) -> None:
        """Forget leases that are another's now; what the worker does with them does not count."""
        for lease in leases:
            with self._lock:
                taken = self._taken.pop(lease, None)
            if taken is not None:
                log.warning(
                    "shard %d was given to another worker: it does not count here", taken.shard.number
                )
        if leases:
            self._make_room()

    def _make_room(self) -> None:
        self._room.set()


class _Pause:
    """All shards are dealt, and others may return theirs."""


def with_last(records: Iterable[Record]) -> Iterator[tuple[Record, bool]]:
    """Yield each record, and whether it is the last one."""
    rest = iter(records)
    for record in rest:
        for following in rest:
            yield record, False
            record = following
        yield record, True


def as_sent(dataset: object) -> Dataset:
    """Return a dataset as the master gets it. ValueError names a field that has no value for one."""
    if not isinstance(dataset, Dataset):
        raise TypeError(f"the data is a {type(dataset).__name__}: give a Dataset(name=…, size=…)")
    try:
        return decode_as(msgspec.json.encode(dataset, enc_hook=_plain), Dataset)
    except UNREADABLE as error:
        raise ValueError(f"dataset {dataset.name!r}: {error}") from error


def _plain(value: Any) -> Any:
    """Return a whole number of numpy as one of Python, and what no message can hold as an object."""
    return int(value) if isinstance(value, Integral) else {}
