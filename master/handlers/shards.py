"""Requests of the consumers of shards. The rules are in `ledger.py`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.shards import (
    Checkpoint,
    Close,
    Consumer,
    Dataset,
    Dealt,
    Lease,
    Open,
    Position,
    Restore,
    Result,
    Saved,
    Standings,
    Status,
)
from elasticjob.master.shards import book, ledger, splitters
from elasticjob.master.shards.book import Book
from elasticjob.master.shards.ledger import Ledger, Reader
from elasticjob.master.state.errors import Refused, Stale, Stopping
from elasticjob.master.state.job import Job, Turn


def open_dataset(job: Job, request: Open, now: datetime) -> Turn[Saved]:
    """Register the dataset and the consumer; answer when that is saved, so that any next master knows it."""
    if job.verdict:
        raise Stopping(f"job {job.spec.job} ends: {job.verdict.message}")
    who, shards = request.consumer, job.shards
    _refuse_replaced(job, who)
    found = _register(shards, request.dataset)
    _refuse_older(found, who)
    known = ledger.find(found, who)
    if known and known.awaited and request.opening <= known.opening:
        raise Stale(_unknown(who, request.dataset.name))
    mark, opening = shards.mark + 1, request.opening
    job = _put(job, ledger.enter(found, who, request.held, request.outcomes, opening, mark, now))
    shards = job.shards
    _, reader = _look_up(shards, who, request.dataset.name)
    if reader.opened > shards.durable:
        return Turn(job)
    return Turn(job, Saved(term=shards.term, mark=shards.mark, durable=shards.durable, lost=reader.refused))


def lease(job: Job, request: Lease, now: datetime) -> Turn[Dealt]:
    """Give the consumer shards until it holds as many as it wants."""
    if job.verdict:
        raise Stopping(f"job {job.spec.job} ends: {job.verdict.message}")
    shards, gate = job.shards, job.shards.gate
    found, reader = _look_up(shards, request.consumer, request.dataset)
    changed, dealt = ledger.deal(found, reader, request.want, gate, now, request.read)
    again = tuple(each for each in reader.leases if each.lease not in request.has)
    if dealt or again:
        cut = tuple(ledger.shard(changed, each) for each in (*again, *dealt))
        new = Dealt(shards=cut, durable=shards.durable, term=shards.term)
        return Turn(_put(job, changed, len(dealt)), new)
    over = ledger.may_end(found, gate) or (request.yields and ledger.may_yield(found, request.consumer))
    if not reader.leases and over:
        poisoned = found.poisoned
        return Turn(job, Dealt(end=True, poisoned=poisoned, durable=shards.durable, term=shards.term))
    if request.pauses and not found.awaiting and found.undealt == 0:
        return Turn(job, Dealt(pause=True, durable=shards.durable, term=shards.term))
    return Turn(job)


def result(job: Job, request: Result, now: datetime) -> Turn[Saved]:
    """Count results and progress, once the opening is saved: no two masters answer in the same term."""
    shards = job.shards
    found, reader = _look_up(shards, request.consumer, request.dataset)
    if reader.opened > shards.durable:
        return Turn(job)
    changed = ledger.result(found, reader, request.outcomes, request.progress, shards.mark + 1, now)
    job = _put(job, changed)
    shards = job.shards
    if request.saved and max(changed.counted, changed.returned) > shards.durable:
        return Turn(job)
    lost = ledger.lacking(changed, request.consumer, request.progress) if request.progress else ()
    if reader.refused:
        lost = (*lost, *(each.lease for each in request.outcomes if each.lease in reader.refused))
    return Turn(job, Saved(term=shards.term, mark=shards.mark, durable=shards.durable, lost=lost))


def close(job: Job, request: Close, now: datetime) -> Turn[Empty]:
    """Forget the consumer; what it holds returns."""
    found = job.shards.datasets.get(request.dataset)
    reader = found and ledger.find(found, request.consumer)
    if found and reader:
        job = _put(job, ledger.lose(found, reader, job.shards.mark + 1))
    return Turn(job, Empty())


def checkpoint(job: Job, request: Checkpoint, now: datetime) -> Turn[Position]:
    """Return where a dataset stands."""
    return Turn(job, ledger.position(_dataset(job.shards, request.dataset)))


def restore(job: Job, request: Restore, now: datetime) -> Turn[Empty]:
    """Go back to a position; every consumer has to open again."""
    wanted = request.position
    found = _register(job.shards, wanted.dataset)
    if found.restored == request.id:
        return Turn(job, Empty())
    last = splitters.total(wanted.dataset)
    if last is not None and wanted.next > last:
        raise Refused(
            f"the position {wanted.next} of dataset {wanted.dataset.name} is beyond its {last} shards"
        )
    return Turn(_put(job, ledger.at_position(wanted, job.shards.mark + 1, request.id)), Empty())


def status(job: Job, request: Status, now: datetime) -> Turn[Standings]:
    """Return the state of all datasets."""
    return Turn(job, Standings(datasets=tuple(map(book.standing, job.shards.datasets.values()))))


def waits_for_save(job: Job, request: Open | Lease | Result) -> bool:
    """Whether a waiting request waits for nothing but a saved ledger."""
    if not isinstance(request, Lease):
        return True
    found = job.shards.datasets.get(request.dataset)
    reader = found and ledger.find(found, request.consumer)
    return bool(found and reader and ledger.waits_for_save(found, reader, job.shards.gate))


def _put(job: Job, changed: Ledger, leases: int = 0) -> Job:
    after = job.shards.put(changed, leases=leases)
    return job if after is job.shards else job.but(shards=after)


def _dataset(shards: Book, name: str) -> Ledger:
    found = shards.datasets.get(name)
    if found is None:
        raise Stale(f"no dataset {name} is registered: open it first")
    return found


def _look_up(shards: Book, who: Consumer, name: str) -> tuple[Ledger, Reader]:
    """Return the ledger and the consumer; Stale unless it has opened the dataset with this master."""
    found = _dataset(shards, name)
    reader = ledger.find(found, who)
    if reader is None or reader.awaited:
        raise Stale(_unknown(who, name))
    return found, reader


def _unknown(who: Consumer, name: str) -> str:
    return f"{who.place} is no consumer of dataset {name} (any more): open it again"


def _register(shards: Book, dataset: Dataset) -> Ledger:
    """Return the dataset's ledger, a new one if there is none; Refused if it is not as registered."""
    found = shards.datasets.get(dataset.name)
    if found is None:
        try:
            problem = splitters.splitter(dataset).problem(dataset)
        except LookupError as error:
            raise Refused(str(error.args[0])) from None
        if problem:
            raise Refused(f"dataset {dataset.name}: {problem}")
        return Ledger(dataset=dataset)
    if found.dataset != dataset:
        old, new = msgspec.structs.asdict(found.dataset), msgspec.structs.asdict(dataset)
        differs = [f"{key} {old[key]!r}, not {new[key]!r}" for key in old if old[key] != new[key]]
        raise Refused(f"dataset {dataset.name} is registered with {'; '.join(differs)}")
    return found


def _refuse_replaced(job: Job, who: Consumer) -> None:
    """Refuse a consumer whose agent was replaced."""
    node = job.nodes.get(who.node)
    if node and who.incarnation in node.retired:
        raise Refused(f"incarnation {who.incarnation} of {who.node} was replaced by {node.incarnation}")


def _refuse_older(found: Ledger, who: Consumer) -> None:
    """Refuse a process that another of the same worker has replaced."""
    reader = ledger.at(found, who)
    if reader and reader.consumer.incarnation == who.incarnation and reader.consumer.life > who.life:
        raise Refused(
            f"{who.place} was replaced by a newer process; several readers of one worker need different names"
        )
