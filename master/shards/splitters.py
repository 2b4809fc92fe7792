"""How datasets are cut into shards: one table. A shard is a pure function of its number.

Numbers count the shards of all epochs, so a position in a dataset is one number and a few holes, and no list
of shards is ever made. A newcomer adds a splitter with a function and a row; the law tests run over the
table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from elasticjob.api.rpc.permutation import key_of, place
from elasticjob.api.rpc.shards import Dataset, Shard, epoch_key

PART: Final = 50_000  # shards of a sub-epoch: shuffled among themselves, and a failed one is dealt at its end
REFILL: Final = 10_000  # records of a stream after which a failed shard is dealt again


class Splitter(NamedTuple):
    """`cut(dataset, number, lease)` makes a shard; `problem` says why a dataset does not fit, or nothing.

    `epoch` is the number of shards of an epoch, None without an end; `part` of what is dealt before the
    failed.
    """

    name: str
    cut: Callable[[Dataset, int, int], Shard]
    problem: Callable[[Dataset], str]
    part: Callable[[Dataset], int]


def splitter(dataset: Dataset) -> Splitter:
    """Return the splitter that the dataset names; LookupError if there is none."""
    for row in SPLITTERS:
        if row.name == dataset.splitter:
            return row
    known = ", ".join(row.name for row in SPLITTERS)
    raise LookupError(f"dataset {dataset.name}: there is no splitter {dataset.splitter!r}; there are {known}")


def per_epoch(dataset: Dataset) -> int | None:
    """Return the number of shards of an epoch; None for a stream without an end."""
    return -(-dataset.size // dataset.shard) if dataset.size else None


def total(dataset: Dataset) -> int | None:
    """Return the number of shards of all epochs; None for endless ones."""
    count = per_epoch(dataset)
    return count * dataset.epochs if count is not None and dataset.epochs else None


def length(dataset: Dataset, number: int) -> int:
    """Return the number of records of a shard."""
    if dataset.size % dataset.shard == 0:
        return dataset.shard
    shard = splitter(dataset).cut(dataset, number, 0)
    return shard.end - shard.start


def cut_table(dataset: Dataset, number: int, lease: int) -> Shard:
    """Contiguous ranges; shuffled, the order of the shards differs in each epoch.

    A huge table is shuffled by sub-epochs: contiguous parts of 50,000 shards.
    """
    count = per_epoch(dataset) or 1
    epoch, k = divmod(number, count)
    if dataset.shuffle:
        part, within = divmod(k, PART)
        k = part * PART + place(
            within, min(PART, count - part * PART), key_of(dataset.seed, f"{dataset.name}/{part}", epoch)
        )
    start = k * dataset.shard
    return Shard(
        number=number,
        lease=lease,
        epoch=epoch,
        start=start,
        end=min(start + dataset.shard, dataset.size),
    )


def cut_text(dataset: Dataset, number: int, lease: int) -> Shard:
    """Ranges of line numbers; shuffled, ranges of one permutation of all records of the epoch."""
    epoch, k = divmod(number, per_epoch(dataset) or 1)
    start = k * dataset.shard
    return Shard(
        number=number,
        lease=lease,
        epoch=epoch,
        start=start,
        end=min(start + dataset.shard, dataset.size),
        key=epoch_key(dataset, epoch) if dataset.shuffle else None,
        size=dataset.size if dataset.shuffle else 0,
    )


def cut_stream(dataset: Dataset, number: int, lease: int) -> Shard:
    """Ranges of offsets, of one partition after another, from the offsets with which it was registered."""
    turn, which = divmod(number, len(dataset.partitions))
    partition = dataset.partitions[which]
    start = partition.offset + turn * dataset.shard
    size = min(dataset.shard, dataset.size - number * dataset.shard) if dataset.size else dataset.shard
    return Shard(number=number, lease=lease, epoch=0, start=start, end=start + size, partition=partition.name)


def _needs_a_size(dataset: Dataset) -> str:
    if dataset.partitions:
        return "partitions belong to the splitter streaming"
    return "" if dataset.size else "size is 0: only a stream has no end"


def _is_a_stream(dataset: Dataset) -> str:
    names = [partition.name for partition in dataset.partitions]
    if not names or len(set(names)) != len(names):
        return f"a stream needs partitions of different names, not {names}"
    if dataset.shuffle:
        return "a stream cannot be shuffled"
    return "" if dataset.epochs == 1 else f"a stream is read once, not in {dataset.epochs} epochs"


def _epoch_or_part(dataset: Dataset) -> int:
    return min(PART, per_epoch(dataset) or PART)


SPLITTERS: tuple[Splitter, ...] = (
    Splitter("table", cut_table, _needs_a_size, _epoch_or_part),
    Splitter("text", cut_text, _needs_a_size, _epoch_or_part),
    Splitter("streaming", cut_stream, _is_a_stream, lambda dataset: -(-REFILL // dataset.shard)),
)
