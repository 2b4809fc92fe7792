"""The store as a worker uses it: batches of records, rows of tables, and updates that count once.

    tables = [Table("users", dim=32, optimizer=Adagrad(0.05)), Table("weights", dim=64)]
    with Store(tables, Dataset(name="ratings", size=N, shard=1_000, epochs=3), save_every=60) as store:
        for batch in store.batches(256):
            ids = users_of(batch.records)
            rows = store.pull("users", ids)                  # [len(ids), 32]
            batch.push({"users": (ids, gradients)})          # ids may repeat: their gradients are added

A batch counts when its push returns. If servers come, go or are lost meanwhile, it is sent again and counts
once. If values had to go back to a checkpoint, the datasets did, too: the batch is dealt again later.
SIGTERM ends the batches after the present one; the rest of its shard goes to others.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from elasticjob.trainer.checks import is_integer, is_number, wants
from elasticjob.trainer.link.address import Way
from elasticjob.trainer.servers.link import way_of
from elasticjob.trainer.servers.visits import Visit, Visits
from elasticjob.trainer.shards import Dataset, Shard
from elasticjob.trainer.store.applied_updates import Done, Key
from elasticjob.trainer.store.given import StoreError, ids_of, sum_rows
from elasticjob.trainer.store.optimizers import Rows
from elasticjob.trainer.store.partitions import owners
from elasticjob.trainer.store.tables import PARTITIONS, Ids, Table, matrix
from elasticjob.trainer.store.wire import (
    MOST_TABLES,
    ROOM,
    Answer,
    Connection,
    Gradients,
    Hello,
    Pull,
    Push,
    Refused,
    Request,
    connect,
)
from elasticjob.trainer.store.wire import Rows as Pulled

ANSWER: Final = 30.0
"""Seconds in which a server answers; then it counts as lost until others are told to serve."""
CHANGE: Final = 1.0
"""Seconds to wait for other servers, after one did not answer, before the present ones are asked again."""
SAY: Final = 10.0
"""Seconds until a worker says what it waits for, and each further time."""
PAUSE: Final = 0.05
"""Seconds until a server that was not ready yet is asked again."""

log = logging.getLogger("elasticjob.store")


@dataclass
class Batch:
    """Records of one shard, of which the update counts once."""

    store: Store
    visit: Visit
    records: Sequence[int]
    start: int
    end: int
    pushed: bool = field(default=False, init=False)

    @property
    def shard(self) -> Shard:
        """The shard of the records."""
        return self.visit.shard

    def push(self, gradients: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]) -> None:
        """Return when the update is made and has its copies: {table: (ids [n], gradients [n, dim])}.

        Raises StoreError if it cannot ever be made.
        """
        if self.pushed:
            raise StoreError(
                f"records {self.start} to {self.end} of {self.store.dataset.name} are pushed twice"
            )
        self.store.push(self, gradients)
        self.pushed = True


class Store:
    """Rows of tables on the parameter servers of the job, and the records of a dataset to train them with.

    With `save_every`, the first worker asks for a checkpoint so often (seconds); the servers need a folder.
    """

    def __init__(
        self,
        tables: Iterable[Table],
        dataset: Dataset,
        *,
        save_every: float | None = None,
        way: Way | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tables = tables_by_name(tables)
        wants("Store: dataset", dataset, isinstance(dataset, Dataset), "a Dataset")
        often = save_every is None or (is_number(save_every) and save_every > 0)
        wants("Store: save_every", save_every, often, "seconds above 0, or None for no checkpoints")
        self.dataset = dataset
        way = way or way_of(os.environ)
        self._token, self._clock = way.token(), clock
        self._visits = Visits(dataset, way, self.at_boundary, save_every=save_every, clock=clock)
        self._following = self._visits.following
        self._clients: dict[str, _Client] = {}
        self._done: list[int] = []

    def __enter__(self) -> Self:
        self._visits.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._visits.__exit__(kind, error, trace)
        self._forget()

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses (host:port) of the servers that this worker trains with, by their place."""
        return self._following.addresses

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield batches of at most `size` records until all are counted, pushed or not.

        With `save_every`, the first worker then waits for a checkpoint of what all of them have made.
        """
        wants("batches: size", size, is_integer(size) and size >= 1, "an int of at least 1")
        return (batch for visit in self._visits for batch in self._batches_of(visit, size))

    def _batches_of(self, visit: Visit, size: int) -> Iterator[Batch]:
        shard = visit.shard
        for start, end in cuts(shard, size):
            if not visit.goes_on():
                return
            yield Batch(self, visit, shard.records[start - shard.start : end - shard.start], start, end)
            if visit.is_over:
                return
            visit.applied(end - shard.start)
        self._done.append(shard.number)
        visit.done()

    def pull(self, table: str, ids: npt.ArrayLike) -> Rows:
        """Return rows, [len(ids), dim]; ids may repeat."""
        dim = self._table(table).dim
        found, inverse = np.unique(ids_of(table, ids), return_inverse=True)
        rows = np.empty((len(found), dim), np.float32)

        def ask(owner: npt.NDArray[np.int64], version: int) -> dict[int, Request]:
            return {
                place: fits(Pull(version, table, found[owner == place].tobytes()))
                for place in np.unique(owner).tolist()
            }

        owner, answers = self._everywhere(found, ask, None)
        for place, answer in answers.items():
            assert isinstance(answer, Pulled)
            rows[owner == place] = matrix(answer.values, int((owner == place).sum()), dim)
        return rows[inverse]

    def push(self, batch: Batch, gradients: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]]) -> None:
        """Make the update of a batch (see Batch.push)."""
        updates = [(name, *sum_rows(self._table(name), *given)) for name, given in gradients.items()]
        every = np.concatenate([ids for _, ids, _ in updates]) if updates else np.zeros(0, np.int64)
        key = Key(self.dataset.name, batch.shard.number, batch.start, batch.end)
        done = tuple(self._done)

        def ask(owner: npt.NDArray[np.int64], version: int) -> dict[int, Request]:
            parts = (Done(self.dataset.name, done),) if done else ()
            asked = np.unique(owner).tolist() if not done else range(len(self._following.addresses))
            of = owners(len(self._following.addresses))
            asks: dict[int, Request] = {}
            for place in asked:
                chosen = [
                    Gradients(name, ids[mine].tobytes(), values[mine].tobytes())
                    for name, ids, values in updates
                    if (mine := np.asarray(of)[ids % PARTITIONS] == place).any()
                ]
                asks[place] = fits(Push(version, key, tuple(chosen), parts))
            return asks

        if self._everywhere(every, ask, batch.visit.restored)[1]:
            del self._done[: len(done)]

    def at_boundary(self) -> bool:
        """Take part in changes of servers and saves, with nothing under way; return whether others serve."""
        self._visits.save_if_due()
        restored = self._following.restored
        if changed := self._following.at_boundary():
            self._forget()
        if self._following.restored != restored:
            self._done.clear()  # they are counted no more
        return changed

    def save(self) -> None:
        """Ask for a checkpoint soon: all workers stop for a moment, files are written meanwhile."""
        self._visits.save()

    def _everywhere(
        self,
        ids: Ids,
        ask: Callable[[npt.NDArray[np.int64], int], dict[int, Request]],
        restored: int | None,
    ) -> tuple[npt.NDArray[np.int64], dict[int, Answer]]:
        """Return the owners of rows and their answers, however often servers change; none after a restore."""
        waits = Waits(self._clock)
        if not self._following.addresses:  # before the first batch
            self._visits.refuse_outside()
            self.at_boundary()
        while True:
            if restored is not None and self._following.restored != restored:
                return np.zeros(0, np.int64), {}
            servers = self._following.addresses
            owner = np.asarray(owners(len(servers)), np.int64)[ids % PARTITIONS]
            try:
                answers = self._exchange(servers, ask(owner, self._following.version))
            except OSError as error:
                waits.say(str(error))
                self._forget()
                self._following.wait_for_change(CHANGE)
            else:
                refused = [each.why for each in answers.values() if isinstance(each, Refused)]
                if not refused:
                    return owner, answers
                waits.say(refused[0])
                self._following.wait_for_change(PAUSE)
            self.at_boundary()

    def _exchange(self, servers: Sequence[str], asks: Mapping[int, Request]) -> dict[int, Answer]:
        """Return all answers; some are refusals, while servers change. Raises OSError if a server is away."""
        for place, request in asks.items():
            self._client(servers[place]).send(request)
        answers = {place: self._client(servers[place]).answer() for place in asks}
        for place, answer in answers.items():
            if isinstance(answer, Refused) and not answer.later:
                raise StoreError(f"{servers[place]}: {answer.why}")
        return answers

    def _client(self, address: str) -> _Client:
        if address not in self._clients:
            self._clients[address] = _Client(connect(address, self._token, ANSWER), self.tables.values())
        return self._clients[address]

    def _forget(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise StoreError(f"there is no table {name}: {', '.join(self.tables)}")
        return self.tables[name]


class _Client:
    """A connection to one server, which knows the tables."""

    def __init__(self, connection: Connection, tables: Iterable[Table]) -> None:
        self._connection = connection
        connection.send(Hello(tuple(tables)))
        answer = connection.answer()
        if isinstance(answer, Refused):
            connection.close()
            raise StoreError(answer.why)

    def send(self, request: Request) -> None:
        self._connection.send(request)

    def answer(self) -> Answer:
        return self._connection.answer()

    def close(self) -> None:
        self._connection.close()


class Waits:
    """Says from time to time what a request waits for: a worker that stands still says why."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._said = clock()

    def say(self, why: str) -> None:
        now = self._clock()
        if now - self._said >= SAY:
            self._said = now
            log.warning("a request waits for %d s: %s", now - self._began, why)


def tables_by_name(tables: Iterable[Table]) -> dict[str, Table]:
    """Return tables by their names."""
    found: dict[str, Table] = {}
    for table in tables:
        wants("Store: a table", table, isinstance(table, Table), "a Table")
        wants("Store: the name of two tables", table.name, table.name not in found, "each one of its own")
        found[table.name] = table
    wants("Store: the number of tables", len(found), 1 <= len(found) <= MOST_TABLES, f"1 to {MOST_TABLES}")
    return found


def fits(request: Pull | Push) -> Request:
    """Return a request, or raise StoreError if its rows are more than a server takes at once."""
    given = (request,) if isinstance(request, Pull) else request.gradients
    size = sum(len(each.ids) for each in given)
    if isinstance(request, Push):
        size += sum(len(each.values) for each in request.gradients)
    if size > ROOM:
        names = ", ".join(each.table for each in given)
        raise StoreError(
            f"rows of {names} for one server are {size} bytes, at most {ROOM}: take smaller batches"
        )
    return request


def cuts(shard: Shard, size: int) -> Iterator[tuple[int, int]]:
    """Yield the batches of a shard, [start, end): the same however often the shard is dealt.

    They are cut at multiples of `size` from the shard's first record, which `used` records precede.
    """
    first, start = shard.start - shard.used, shard.start
    while start < shard.end:
        end = min(start + size - (start - first) % size, shard.end)
        yield start, end
        start = end
