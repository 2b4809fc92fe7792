"""The ledgers of a job, and what they share: the count of changes and of masters, the numbers of leases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Self

import msgspec

from elasticjob.api.rpc.shards import Standing
from elasticjob.master.shards import ledger as ledgers
from elasticjob.master.shards import splitters
from elasticjob.master.shards.ledger import Gate, Ledger

LEASES: Final = 1 << 32  # that one master may give out


class Book(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All ledgers. `mark` counts changes, of which those up to `durable` are saved; `term` counts masters.

    `news` rises when a waiting consumer may be answered.
    """

    datasets: dict[str, Ledger] = msgspec.field(default_factory=dict)
    mark: int = 0
    durable: int = 0
    term: int = 0
    leases: int = 0
    news: int = 0

    def but(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)

    @property
    def gate(self) -> Gate:
        """The next change."""
        return Gate(self.mark + 1, self.durable, self.term * LEASES + self.leases)

    def put(self, ledger: Ledger, *, leases: int = 0) -> Book:
        """Return the book after a change of one ledger; the same book if nothing has changed."""
        name = ledger.dataset.name
        before = self.datasets.get(name)
        if before is ledger:
            return self
        return self.but(
            datasets={**self.datasets, name: ledger},
            mark=self.mark + 1,
            leases=self.leases + leases,
            news=self.news + _is_news(before, ledger),
        )

    def each(self, change: Callable[[Ledger], Ledger]) -> Book:
        """Return the book with all ledgers changed."""
        book = self
        for ledger in self.datasets.values():
            book = book.put(change(ledger))
        return book


def after_save(book: Book, mark: int) -> Book:
    """Return the book after the changes up to `mark` were saved."""
    return book.but(durable=mark, news=book.news + 1) if mark > book.durable else book


def lose_node(book: Book, node: str, worker: str = "", error: str = "") -> Book:
    """Return the book without the consumers of a lost node, or of one worker of it."""
    mark = book.mark + 1
    return book.each(lambda ledger: ledgers.lose_node(ledger, node, mark, worker, error))


def tick(book: Book, now: datetime) -> Book:
    """Return the book without the consumers whose deadline has passed."""
    return book.each(lambda ledger: ledgers.tick(ledger, book.mark + 1, now))


def overslept(book: Book, gap: timedelta) -> Book:
    """Return the book with deadlines extended by `gap`, for which the master itself was suspended."""
    return book.each(lambda ledger: ledgers.later(ledger, gap))


def taken_over(book: Book, until: datetime) -> Book:
    """Return the book of a snapshot as the next master goes on with it; consumers open again until then."""
    if not book.datasets:
        return book.but(durable=book.mark)
    datasets = {name: ledgers.taken_over(ledger, until) for name, ledger in book.datasets.items()}
    return book.but(datasets=datasets, durable=book.mark, term=book.term + 1, leases=0, mark=book.mark + 1)


def standing(ledger: Ledger) -> Standing:
    """Return the state of a dataset for people."""
    dataset, per_epoch = ledger.dataset, splitters.per_epoch(ledger.dataset)
    returned = sum(end - start for start, end in ledger.back) + len(ledger.late)
    done = ledger.next - returned - ledger.holding - len(ledger.poisoned)
    return Standing(
        dataset=dataset.name,
        epoch=max(0, ledger.next - 1) // per_epoch if per_epoch else 0,
        epochs=dataset.epochs,
        shards=splitters.total(dataset),
        done=done,
        doing=ledger.holding,
        returned=returned,
        records=ledger.applied,
        steps=ledger.steps,
        consumers=ledger.consumers,
        complete=ledger.complete,
        poisoned=ledger.poisoned,
    )


def trouble(book: Book) -> str:
    """Return in a sentence which shards are poisoned, or nothing."""
    found = [(name, bad) for name, ledger in book.datasets.items() for bad in ledger.poisoned]
    if not found:
        return ""
    name, bad = found[0]
    more = f", and {len(found) - 1} more are poisoned" if len(found) > 1 else ""
    return f"dataset {name} is not complete: shard {bad}{more}"


def _is_news(before: Ledger | None, after: Ledger) -> bool:
    """Whether somebody who waits may get an answer: shards came back, a share is free, or nothing is left."""
    if before is None:
        return False
    freed = after.returned != before.returned or (before.awaiting and not after.awaiting)
    freed = freed or (after.counted != before.counted and after.scarce and bool(after.undealt))
    return bool(freed or after.restored != before.restored or (not after.holding and after.is_exhausted))
