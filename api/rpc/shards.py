"""Shards: consumers take ranges of a dataset's records on lease, and say what became of them.

A *consumer* is one process (or one reading thread) of a worker: node, the agent's incarnation, the worker's
name, and `life`, which rises from each process of that worker to the next. It opens a dataset, asks for
leases, and sends results. A master that does not know it (any more) answers 409 `stale`: it opens again, and
names what it holds and which results may not be saved yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final

import msgspec

from elasticjob.api.numbers import Count, Name, Wait
from elasticjob.api.rpc.message import Empty, Message, Request
from elasticjob.api.rpc.permutation import key_of, place

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=31_536_000)]
Error = Annotated[str, msgspec.Meta(max_length=2048)]
Ranges = tuple[tuple[Count, Count], ...]
"""Numbers as sorted, disjoint ranges [start, end)."""

MOST_LEASES: Final = 256
"""How many shards one consumer may hold."""


class Partition(Message, frozen=True, kw_only=True):
    """A partition of a stream, and the offset of the first record to read."""

    name: Annotated[str, msgspec.Meta(max_length=253)]
    offset: Count = 0


class Dataset(Message, frozen=True, kw_only=True):
    """A dataset as it is registered: the same again changes nothing, another one of that name is refused.

    `size` is the number of records of an epoch, 0 for a stream without an end; a shard has `shard` records,
    the last one of an epoch may have fewer. With `epochs` 0 it is read again and again. A shard whose
    attempts failed more than `retries` times is poisoned. A consumer that makes no progress for `deadline`
    seconds loses its shards; 0: 1,800 s at first, then 3 times as long as the slowest shard so far, at least
    600 s.
    """

    name: Name
    size: Count = 0
    shard: Positive = 100
    epochs: Count = 1
    splitter: str = "table"
    shuffle: bool = False
    seed: Count = 0
    retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    deadline: Seconds = 0.0
    partitions: Annotated[tuple[Partition, ...], msgspec.Meta(max_length=4096)] = ()
    batch: Positive = 1  # records of a step, for the count of steps
    task: str = "training"  # or evaluation, or prediction: for people


class Shard(Message, frozen=True, kw_only=True):
    """A range of records on lease: places [start, end) of epoch `epoch`, counted from 0.

    `number` counts the shards of the dataset over all epochs; `lease` is larger with each lease of the same
    shard, so that of several outputs of a shard that of the largest lease is the one that counts. `partition`
    names the part of a stream. The `used` records before `start` were applied by an earlier worker. With a
    `key`, the places are those of the shuffled order of `size` records.
    """

    number: int
    lease: int
    epoch: int
    start: int
    end: int
    partition: str = ""
    used: int = 0
    key: int | None = None
    size: int = 0

    def __len__(self) -> int:
        """The number of records."""
        return self.end - self.start

    @property
    def records(self) -> Sequence[int]:
        """The indices of the records, or offsets in the partition."""
        places = range(self.start, self.end)
        return places if self.key is None else [place(k, self.size, self.key) for k in places]


class Held(Message, frozen=True, kw_only=True):
    """A lease of a consumer; the first `used` records are applied."""

    number: Count
    lease: Count
    used: Count = 0


class Outcome(Message, frozen=True, kw_only=True):
    """What became of a lease: its records are applied (the step that used them succeeded), or an `error`."""

    number: Count
    lease: Count
    error: Error = ""


class Poisoned(Message, frozen=True, kw_only=True):
    """A shard that failed too often; its dataset is never complete."""

    number: Count
    epoch: Count
    start: Count
    end: Count
    attempts: Count
    error: str
    partition: str = ""

    def __str__(self) -> str:
        where = f"{self.partition} " if self.partition else ""
        what = f"{where}[{self.start}, {self.end}) of epoch {self.epoch}"
        return f"{what} failed {self.attempts} times: {self.error}"


class Saved(Message, frozen=True, kw_only=True):
    """The answer to results: they are part of the ledger's change `mark`; changes up to `durable` are saved.

    A master that starts anew may lack later ones: a consumer keeps its results until `durable` passes them.
    `term` rises with each start of a master. `lost` names the leases that belong to the sender no more.
    """

    term: int
    mark: int
    durable: int
    lost: tuple[int, ...] = ()


class Dealt(Message, frozen=True, kw_only=True):
    """New leases. At the `end` there will be none any more; the dataset is complete unless some are
    poisoned. In a `pause` there is none until a consumer loses some. Changes up to `durable` of the master's
    `term` are saved."""

    shards: tuple[Shard, ...] = ()
    end: bool = False
    pause: bool = False
    poisoned: tuple[Poisoned, ...] = ()
    durable: int = 0
    term: int = 0


class Consumer(Message, frozen=True, kw_only=True):
    """Who asks."""

    node: Name
    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    life: Count
    incarnation: Annotated[str, msgspec.Meta(max_length=253)] = ""

    @property
    def place(self) -> str:
        """The place of the worker, the same for the next process."""
        return f"{self.node}/{self.worker}"

    @property
    def slot(self) -> str:
        """The worker of the node, without the name of a process or thread of it."""
        return self.worker.partition(".")[0]


Leases = Annotated[tuple[Held, ...], msgspec.Meta(max_length=MOST_LEASES)]
Outcomes = Annotated[tuple[Outcome, ...], msgspec.Meta(max_length=65_536)]


class Open(Request[Saved], frozen=True, kw_only=True):
    """Register the dataset, and begin to consume it; answered as soon as that is saved (long poll).

    After the answer `stale` or a break of the connection: the leases that the consumer holds, and the results
    that may not be saved. A process that opens takes the place of an earlier one, whose leases return.
    """

    PATH: ClassVar[str] = "shards/open"
    consumer: Consumer
    dataset: Dataset
    held: Leases = ()
    outcomes: Outcomes = ()
    opening: Count = 0  # one more after each answer, `stale` too: an old request that comes late is refused
    wait: Wait = 20.0


class Lease(Request[Dealt], frozen=True, kw_only=True):
    """Ask for shards until the consumer holds `want` of them (long poll while there are none yet).

    Those that it has `read` to the end do not count: they are not done yet because a batch is not full. One
    that has such shards `pauses`: it is told at once when all are dealt, so that it can use them.
    `has` names the leases that it knows: others of its own are sent again. A consumer that `yields` is one of
    several that a loop takes from in turn (processes of a DataLoader): it may not wait while another one of
    its worker holds shards, or none of them goes on.
    """

    PATH: ClassVar[str] = "shards/lease"
    consumer: Consumer
    dataset: Name
    want: Annotated[int, msgspec.Meta(ge=1, le=MOST_LEASES)] = 1
    has: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_LEASES)] = ()
    yields: bool = False
    read: Count = 0
    pauses: bool = False
    wait: Wait = 20.0


class Result(Request[Saved], frozen=True, kw_only=True):
    """Results, and progress in leases that are not finished; either renews the consumer's deadline.

    Progress may be that of the last time: the consumer is well, and waits for its worker. A result counts
    once. With `saved`, the answer waits until the results are saved (long poll).
    """

    PATH: ClassVar[str] = "shards/result"
    consumer: Consumer
    dataset: Name
    outcomes: Outcomes = ()
    progress: Leases = ()
    saved: bool = False
    wait: Wait = 20.0


class Close(Request[Empty], frozen=True, kw_only=True):
    """Stop consuming: the leases return."""

    PATH: ClassVar[str] = "shards/close"
    consumer: Consumer
    dataset: Name


class Position(Message, frozen=True, kw_only=True):
    """Where a dataset stands, for a checkpoint of the model: shards below `next` are done, but for `open`.

    `used` is how many records of an open shard are applied, `failed` how often it failed.
    """

    dataset: Dataset
    next: Count
    open: Ranges = ()
    used: dict[Count, Count] = msgspec.field(default_factory=dict)
    failed: dict[Count, Count] = msgspec.field(default_factory=dict)
    poisoned: tuple[Poisoned, ...] = ()
    applied: Count = 0


class Checkpoint(Request[Position], frozen=True, kw_only=True):
    """Ask where a dataset stands; leases that are not finished count as open."""

    PATH: ClassVar[str] = "shards/checkpoint"
    dataset: Name


class Restore(Request[Empty], frozen=True, kw_only=True):
    """Go back to a position: what was finished after it is dealt again; all leases end.

    `id` is new for each restore: a repeated request changes nothing.
    """

    PATH: ClassVar[str] = "shards/restore"
    id: Name
    position: Position


class Standing(Message, frozen=True, kw_only=True):
    """The state of a dataset, for people."""

    dataset: str
    epoch: int
    epochs: int
    shards: int | None  # of all epochs; None: endless
    done: int
    doing: int
    returned: int
    records: int  # applied
    steps: int
    consumers: int
    complete: bool
    poisoned: tuple[Poisoned, ...] = ()


class Standings(Message, frozen=True, kw_only=True):
    """The state of all datasets."""

    datasets: tuple[Standing, ...] = ()


class Status(Request[Standings], frozen=True, kw_only=True):
    """Ask for the state of all datasets."""

    PATH: ClassVar[str] = "shards/status"


def epoch_key(dataset: Dataset, epoch: int) -> int:
    """Return the key of the order of an epoch."""
    return key_of(dataset.seed, dataset.name, epoch)
