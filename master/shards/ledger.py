"""The ledger of one dataset: which shards are to be dealt, on lease, done or poisoned.

1. Shards have numbers; those from `next` on were never dealt. Below it, a shard is held by a consumer, is
`back` from a lost one (dealt first), is `late` because it failed (dealt at the end of its part), is poisoned,
or is done: so the ledger grows with the holes, not with the shards.
2. A result counts if its sender holds the lease. One that it held before was counted: the answer is the same.
A consumer that is lost is forgotten whole: whatever it sends later is refused.
3. A consumer is lost with its node or process, or when it makes no progress until its deadline.
4. A shard that failed more often than its dataset allows is poisoned, and the dataset is never complete.
Losses without an error of the worker do not count as failures.
5. A snapshot may lack the last changes. So a consumer gets no lease or receipt before its opening is saved,
and a shard that came back is dealt only when its return is saved: after a restart from any snapshot, a lease
that the snapshot lacks belongs to a consumer that it has. Those consumers open again and name what they hold;
until all have, or are lost, nothing is dealt. An error that the snapshot has is told again by a consumer that
has not heard so; `failed_by` tells that it counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self

import msgspec

from elasticjob.api.rpc.shards import (
    MOST_LEASES,
    Consumer,
    Dataset,
    Held,
    Outcome,
    Poisoned,
    Position,
    Ranges,
    Shard,
)
from elasticjob.master.shards import splitters

UNKNOWN: Final = 1800.0  # seconds for a shard while none has been finished
LEAST: Final = 600.0  # a slow consumer has not hung: cold storage, a long evaluation
SLACK: Final = 3.0  # how many times as long as the slowest shard one may take
SCARCE: Final = 4  # shards per consumer that are not done, below which each holds no more than its share
BUCKETS: Final = 64
JUMP: Final = 10_000_000  # shards that an earlier master may have dealt without saving them


class Reader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A consumer of a dataset, as its ledger knows it.

    `opened` is the change by which it came. `awaited`: a snapshot names it, and it has not opened again yet.
    `since` is its last result, or its first lease; it is lost at `until`. `refused` are the leases that it
    named when it opened and that were not its own any more.
    """

    consumer: Consumer
    opened: int
    since: datetime
    until: datetime
    awaited: bool = False
    leases: tuple[Held, ...] = ()
    refused: tuple[int, ...] = ()
    opening: int = 0


Readers = tuple[dict[str, Reader], ...]
"""Readers by their places. Those of a node are in one of many small dicts, so that a change copies little."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one dataset.

    `returned` is the last change that brought a shard back, `counted` the last with a result. `failed` counts
    the failures of open shards, `used` the applied records of those that nobody holds. `holding` and
    `awaiting` count leases and consumers, `due` is no later than the first deadline.
    """

    dataset: Dataset
    next: int = 0
    back: Ranges = ()
    late: tuple[int, ...] = ()
    poisoned: tuple[Poisoned, ...] = ()
    failed: dict[int, int] = msgspec.field(default_factory=dict)
    failed_by: dict[int, int] = msgspec.field(default_factory=dict)  # the lease of the last of these failures
    used: dict[int, int] = msgspec.field(default_factory=dict)
    readers: Readers = ({},) * BUCKETS
    holding: int = 0
    awaiting: int = 0
    returned: int = 0
    counted: int = 0
    slowest: float = 0.0
    applied: int = 0
    steps: int = 0
    due: datetime | None = None
    restored: str = ""

    def but(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)

    @property
    def complete(self) -> bool:
        """Whether all records of all epochs are applied."""
        return self.is_exhausted and not self.poisoned

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left to be dealt or to be finished."""
        return not self.holding and self.undealt == 0

    @property
    def undealt(self) -> int | None:
        """How many shards nobody holds that are not done; None for a stream without an end."""
        last = splitters.total(self.dataset)
        back = sum(end - start for start, end in self.back) + len(self.late)
        return None if last is None else last - self.next + back

    @property
    def consumers(self) -> int:
        """How many consumers there are."""
        return sum(map(len, self.readers))

    @property
    def scarce(self) -> bool:
        """Whether so few shards are left that one consumer's fetching ahead would leave others idle."""
        left = self.undealt
        return left is not None and left + self.holding < SCARCE * self.consumers

    @property
    def open(self) -> Ranges:
        """The shards below `next` that are neither done nor poisoned."""
        held = (each.number for reader in everyone(self) for each in reader.leases)
        return merge([*self.back, *((n, n + 1) for n in self.late), *((n, n + 1) for n in held)])

    @property
    def deadline(self) -> timedelta:
        """How long a consumer may go without progress."""
        known = max(LEAST, SLACK * self.slowest) if self.slowest else UNKNOWN
        return timedelta(seconds=self.dataset.deadline or known)


class Gate(NamedTuple):
    """The change that is being made, up to which change all are saved, and the number of the next lease."""

    mark: int
    durable: int
    lease: int


def find(ledger: Ledger, consumer: Consumer) -> Reader | None:
    """Return the consumer as the ledger knows it; None if it is lost, replaced, or has not opened."""
    reader = at(ledger, consumer)
    return reader if reader and same(reader.consumer, consumer) else None


def at(ledger: Ledger, consumer: Consumer) -> Reader | None:
    """Return whoever is at the place of the consumer."""
    return _bucket(ledger, consumer.node).get(consumer.place)


def same(one: Consumer, other: Consumer) -> bool:
    """Whether both are the same process."""
    return one.life == other.life and one.incarnation == other.incarnation


def everyone(ledger: Ledger) -> Iterator[Reader]:
    """Yield all consumers."""
    for bucket in ledger.readers:
        yield from bucket.values()


def enter(
    ledger: Ledger,
    consumer: Consumer,
    held: Iterable[Held],
    outcomes: Iterable[Outcome],
    opening: int,
    mark: int,
    now: datetime,
) -> Ledger:
    """Return the ledger with the consumer, what it holds and its results; repeating it changes nothing.

    A consumer that the snapshot of an earlier master names keeps the leases that the snapshot has, and those
    of open shards, which it got later. Of any other, all are refused: it is new, or it was lost.
    """
    old = at(ledger, consumer)
    if old and same(old.consumer, consumer):
        ledger, reader = _again(ledger, old, held, outcomes, opening, mark, now)
        return result(ledger, reader, outcomes, (), mark, now)
    if old:
        ledger = lose(ledger, old, mark)
    refused = (*(each.lease for each in held), *(each.lease for each in outcomes))
    until = now + ledger.deadline
    return _put(
        ledger,
        Reader(consumer=consumer, opened=mark, since=now, until=until, refused=refused, opening=opening),
    )


def lacking(ledger: Ledger, consumer: Consumer, held: Iterable[Held]) -> tuple[int, ...]:
    """Return the leases in `held` that are not the consumer's (any more)."""
    reader = find(ledger, consumer)
    own = {each.lease for each in reader.leases} if reader else set()
    return tuple(each.lease for each in held if each.lease not in own)


def deal(
    ledger: Ledger, reader: Reader, want: int, gate: Gate, now: datetime, read: int = 0
) -> tuple[Ledger, tuple[Held, ...]]:
    """Return the ledger and the new leases, until the consumer holds `want` beside those it has `read`.

    Near the end it gets its share only.
    """
    if ledger.awaiting or reader.opened > gate.durable:
        return ledger, ()
    dealt: list[Held] = []
    room = min(_share(ledger, want) + read, MOST_LEASES) - len(reader.leases)
    for lease in range(gate.lease, gate.lease + room):
        ledger, number = _pick(ledger, gate)
        if number is None:
            break
        dealt.append(Held(number=number, lease=lease, used=ledger.used.get(number, 0)))
        if dealt[-1].used:
            ledger = ledger.but(used=_without(ledger.used, number))
    if not dealt:
        return ledger, ()
    since, until = (reader.since, reader.until) if reader.leases else (now, now + ledger.deadline)
    ledger = _put(ledger, _with(reader, since=since, until=until, leases=(*reader.leases, *dealt)))
    return ledger, tuple(dealt)


def waits_for_save(ledger: Ledger, reader: Reader, gate: Gate) -> bool:
    """Whether the next answer to this consumer waits for nothing but a saved ledger."""
    if reader.opened > gate.durable or ledger.is_exhausted:
        return True
    return not ledger.awaiting and bool(ledger.back or ledger.late) and ledger.returned > gate.durable


def may_end(ledger: Ledger, gate: Gate) -> bool:
    """Whether consumers may be told that nothing is left: no new master has to learn of the last result."""
    return ledger.is_exhausted and max(ledger.counted, ledger.returned) <= gate.durable


def may_yield(ledger: Ledger, consumer: Consumer) -> bool:
    """Whether this consumer may end before others: all shards are dealt, and one of its worker holds some.

    That one waits in the end for what is lost elsewhere.
    """
    if ledger.awaiting or ledger.undealt != 0:
        return False
    return any(
        reader.leases and reader.consumer.node == consumer.node and reader.consumer.slot == consumer.slot
        for reader in _bucket(ledger, consumer.node).values()
    )


def result(
    ledger: Ledger,
    reader: Reader,
    outcomes: Iterable[Outcome],
    progress: Iterable[Held],
    mark: int,
    now: datetime,
) -> Ledger:
    """Return the ledger after the results of a consumer that it knows; repeated ones change nothing."""
    leases, finished, moved = reader.leases, 0, False
    for outcome in outcomes:
        mine = next((own for own in leases if own.lease == outcome.lease), None)
        if mine is None:
            continue
        finished += 1
        leases = tuple(own for own in leases if own is not mine)
        ledger = _fail(ledger, mine, outcome.error, mark) if outcome.error else _apply(ledger, mine)
    for each in progress:
        moved = moved or any(own.lease == each.lease for own in leases)
        leases = _note(ledger, leases, each)
    if not finished and not moved:
        return ledger
    if finished:
        seconds = (now - reader.since).total_seconds() / finished
        ledger = ledger.but(counted=mark, slowest=max(ledger.slowest, seconds))
    since = now if finished else reader.since
    until = now + ledger.deadline
    return _put(ledger, _with(reader, since=since, until=until, leases=leases))


def lose(ledger: Ledger, reader: Reader, mark: int, error: str = "") -> Ledger:
    """Return the ledger without a consumer; the shards that it held come back.

    With an `error` of its own, the first one failed: that is the one it worked on.
    """
    leases = reader.leases
    ledger = _drop(ledger, reader)
    if error and leases:
        ledger, leases = _fail(ledger, leases[0], error, mark), leases[1:]
    for each in leases:
        ledger = _keep(ledger, each)
    if not leases:
        return ledger
    back = merge([*ledger.back, *((each.number, each.number + 1) for each in leases)])
    return ledger.but(back=back, returned=mark)


def lose_node(ledger: Ledger, node: str, mark: int, worker: str = "", error: str = "") -> Ledger:
    """Return the ledger without the consumers of a node, or of one worker of it (and its reading threads)."""
    for reader in list(_bucket(ledger, node).values()):
        who = reader.consumer
        if who.node == node and (not worker or who.slot == worker):
            ledger = lose(ledger, reader, mark, error)
    return ledger


def tick(ledger: Ledger, mark: int, now: datetime) -> Ledger:
    """Return the ledger without the consumers whose deadline has passed."""
    if ledger.due is None or now < ledger.due:
        return ledger
    for reader in list(everyone(ledger)):
        if _has_deadline(reader) and reader.until <= now:
            ledger = lose(ledger, reader, mark)
    return ledger.but(due=min((r.until for r in everyone(ledger) if _has_deadline(r)), default=None))


def taken_over(ledger: Ledger, until: datetime) -> Ledger:
    """Return the ledger as a new master takes it over: its consumers have until then to open again."""
    readers: tuple[dict[str, Reader], ...] = tuple({} for _ in range(BUCKETS))
    for reader in everyone(ledger):  # they are in other buckets here: a string's hash differs by process
        who = reader.consumer
        readers[hash(who.node) % BUCKETS][who.place] = _with(reader, awaited=True, until=until)
    awaiting = sum(map(len, readers))
    return ledger.but(readers=readers, awaiting=awaiting, due=until if awaiting else None)


def later(ledger: Ledger, gap: timedelta) -> Ledger:
    """Return the ledger with all deadlines later by `gap`."""
    readers = tuple(
        {place: _with(reader, until=reader.until + gap) for place, reader in bucket.items()}
        for bucket in ledger.readers
    )
    return ledger.but(readers=readers, due=ledger.due and ledger.due + gap)


def position(ledger: Ledger) -> Position:
    """Return where the dataset stands."""
    held = {each.number: each.used for reader in everyone(ledger) for each in reader.leases if each.used}
    return Position(
        dataset=ledger.dataset,
        next=ledger.next,
        open=ledger.open,
        used=ledger.used | held,
        failed=ledger.failed,
        poisoned=ledger.poisoned,
        applied=ledger.applied,
    )


def at_position(position: Position, mark: int, restored: str) -> Ledger:
    """Return a ledger that stands at `position`; its consumers open again."""
    return Ledger(
        dataset=position.dataset,
        next=position.next,
        back=position.open,
        poisoned=position.poisoned,
        failed=position.failed,
        used=position.used,
        applied=position.applied,
        returned=mark,
        restored=restored,
    )


def shard(ledger: Ledger, held: Held) -> Shard:
    """Return a lease as its consumer gets it: without the records that are applied."""
    whole = splitters.splitter(ledger.dataset).cut(ledger.dataset, held.number, held.lease)
    return (
        msgspec.structs.replace(whole, start=whole.start + held.used, used=held.used) if held.used else whole
    )


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges sorted, with those that touch as one."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def _again(
    ledger: Ledger,
    reader: Reader,
    held: Iterable[Held],
    outcomes: Iterable[Outcome],
    opening: int,
    mark: int,
    now: datetime,
) -> tuple[Ledger, Reader]:
    """Return the ledger and the consumer after it has named what it holds."""
    if not reader.awaited:
        if opening <= reader.opening:
            return ledger, reader
        # It was told that nobody knows it, and a late request of its own was faster than this one.
        own = {each.lease for each in reader.leases}
        named = (*(each.lease for each in held), *(each.lease for each in outcomes))
        unknown = tuple(lease for lease in named if lease not in own)
        reader = _with(reader, opening=opening, refused=(*reader.refused, *unknown))
        return _put(ledger, reader), reader
    leases = reader.leases
    for each in (*held, *(Held(number=outcome.number, lease=outcome.lease) for outcome in outcomes)):
        if each.lease <= ledger.failed_by.get(each.number, -1):
            continue  # its error is in the snapshot, and would count twice
        if any(own.lease == each.lease for own in leases):
            leases = _note(ledger, leases, each)
        elif _is_open(ledger, each.number):
            ledger = _take(ledger, each.number)
            leases = (*leases, each)
    own = {each.lease for each in leases}
    refused = (*reader.refused, *(each.lease for each in held if each.lease not in own))
    until = now + ledger.deadline
    reader = _with(reader, opened=mark, awaited=False, since=now, until=until, opening=opening)
    reader = _with(reader, leases=leases, refused=refused)
    return _put(ledger, reader), reader


def _share(ledger: Ledger, want: int) -> int:
    """Return how many shards a consumer may hold: what one fetches ahead near the end, the others lack."""
    return (
        min(want, -(-(ledger.holding + (ledger.undealt or 0)) // ledger.consumers)) if ledger.scarce else want
    )


def _pick(ledger: Ledger, gate: Gate) -> tuple[Ledger, int | None]:
    """Return the ledger without the shard that is dealt next; None if there is none now."""
    last = splitters.total(ledger.dataset)
    fresh = last is None or ledger.next < last
    if ledger.returned <= gate.durable:
        if ledger.back:
            (start, end), *rest = ledger.back
            return ledger.but(back=(*(((start + 1, end),) if end > start + 1 else ()), *rest)), start
        if ledger.late and (not fresh or _part(ledger, ledger.late[0]) < _part(ledger, ledger.next)):
            return ledger.but(late=ledger.late[1:]), ledger.late[0]
    return (ledger.but(next=ledger.next + 1), ledger.next) if fresh else (ledger, None)


def _part(ledger: Ledger, number: int) -> tuple[int, int]:
    """Return the epoch of a shard, and its part of the epoch."""
    part = splitters.splitter(ledger.dataset).part(ledger.dataset)
    epoch, k = divmod(number, splitters.per_epoch(ledger.dataset) or number + 1)
    return epoch, k // part


def _is_open(ledger: Ledger, number: int) -> bool:
    """Whether a shard was never dealt, or waits to be dealt again."""
    last = splitters.total(ledger.dataset)
    if number >= ledger.next:
        return number < ledger.next + JUMP and (last is None or number < last)
    return number in ledger.late or any(start <= number < end for start, end in ledger.back)


def _take(ledger: Ledger, number: int) -> Ledger:
    """Return the ledger without an open shard; never dealt ones before it may be others' leases, and wait."""
    if number >= ledger.next:
        skipped = ((ledger.next, number),) if number > ledger.next else ()
        return ledger.but(next=number + 1, back=merge([*ledger.back, *skipped]))
    late = tuple(each for each in ledger.late if each != number)
    parts = (
        part
        for start, end in ledger.back
        for part in ((start, min(end, number)), (max(start, number + 1), end))
    )
    back = tuple((start, end) for start, end in parts if start < end)
    return ledger.but(back=back, late=late, used=_without(ledger.used, number))


def _apply(ledger: Ledger, held: Held) -> Ledger:
    """Count a shard."""
    dataset = ledger.dataset
    records = splitters.length(dataset, held.number)
    if ledger.failed:
        ledger = _forgive(ledger, held)
    steps = -(-records // dataset.batch)
    return ledger.but(applied=ledger.applied + records, steps=ledger.steps + steps)


def _fail(ledger: Ledger, held: Held, error: str, mark: int) -> Ledger:
    """Count a failure: the shard is dealt again at the end of its part, or is poisoned."""
    failures = ledger.failed.get(held.number, 0) + 1
    if failures <= ledger.dataset.retries:
        failed = ledger.failed | {held.number: failures}
        failed_by = ledger.failed_by | {held.number: held.lease}
        ledger = _keep(ledger.but(failed=failed, failed_by=failed_by), held)
        return ledger.but(late=(*ledger.late, held.number), returned=mark)
    bad = shard(ledger, held)
    poisoned = Poisoned(
        number=bad.number,
        epoch=bad.epoch,
        start=bad.start,
        end=bad.end,
        attempts=failures,
        error=error[:2048],
        partition=bad.partition,
    )
    applied = ledger.applied + held.used
    return _forgive(ledger, held).but(poisoned=(*ledger.poisoned, poisoned), applied=applied)


def _forgive(ledger: Ledger, held: Held) -> Ledger:
    """Return the ledger without the failures of a shard that is over."""
    failed, by = _without(ledger.failed, held.number), _without(ledger.failed_by, held.number)
    return ledger.but(failed=failed, failed_by=by)


def _keep(ledger: Ledger, held: Held) -> Ledger:
    """Return the ledger that remembers how far a returned shard is applied."""
    return ledger.but(used=ledger.used | {held.number: held.used}) if held.used else ledger


def _note(ledger: Ledger, leases: tuple[Held, ...], said: Held) -> tuple[Held, ...]:
    """Return the leases with the progress that a consumer reports; the same if there is none."""
    for own in leases:
        if own.lease == said.lease and said.used > own.used:
            used = min(said.used, splitters.length(ledger.dataset, own.number))
            new = Held(number=own.number, lease=own.lease, used=used)
            return tuple(new if each is own else each for each in leases)
    return leases


def _has_deadline(reader: Reader) -> bool:
    """Whether the consumer owes progress, or has yet to open again."""
    return reader.awaited or bool(reader.leases)


def _bucket(ledger: Ledger, node: str) -> dict[str, Reader]:
    return ledger.readers[hash(node) % BUCKETS]


def _put(ledger: Ledger, reader: Reader) -> Ledger:
    """Return the ledger with a consumer added or replaced, and its counts."""
    return _change(ledger, reader.consumer, reader)


def _drop(ledger: Ledger, reader: Reader) -> Ledger:
    return _change(ledger, reader.consumer, None)


def _change(ledger: Ledger, who: Consumer, reader: Reader | None) -> Ledger:
    which, place, readers = hash(who.node) % BUCKETS, who.place, list(ledger.readers)
    bucket = readers[which] = readers[which].copy()
    old = bucket.pop(place, None)
    if reader is not None:
        bucket[place] = reader
    holding = ledger.holding + (len(reader.leases) if reader else 0) - (len(old.leases) if old else 0)
    awaiting = ledger.awaiting + bool(reader and reader.awaited) - bool(old and old.awaited)
    due = ledger.due
    if reader and _has_deadline(reader) and (due is None or reader.until < due):
        due = reader.until
    return msgspec.structs.replace(
        ledger, readers=tuple(readers), holding=holding, awaiting=awaiting, due=due
    )


def _with(reader: Reader, **changes: Any) -> Reader:
    return msgspec.structs.replace(reader, **changes)


def _without(numbers: dict[int, int], number: int) -> dict[int, int]:
    return (
        {each: count for each, count in numbers.items() if each != number} if number in numbers else numbers
    )
