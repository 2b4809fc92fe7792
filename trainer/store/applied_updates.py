"""The records that a partition has counted: an update is identified by its records, not by its sender.

The batches of a shard are sent one after another, so one number for each open shard is enough: up to where it
is counted. A shard that is done is one of a few ranges of numbers, so that a late repetition is known for
ever, and memory does not grow with the training.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from elasticjob.api.numbers import Count, Name


class Overlap(ValueError):
    """A range of records is counted in part: batches of another size were counted before."""


class Key(msgspec.Struct, frozen=True):
    """The records [start, end) of a shard, by their places in the epoch; shards are counted over epochs."""

    dataset: Name
    number: Count
    start: Count
    end: Count

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"records {self.start} to {self.end} are none")


class Done(msgspec.Struct, frozen=True):
    """Shards of a dataset of which all records are counted."""

    dataset: Name
    numbers: tuple[Count, ...]


class AppliedUpdates(msgspec.Struct):
    """The counted records of all datasets: open shards up to a place, and the shards that are done."""

    open: dict[str, dict[int, int]] = {}
    done: dict[str, list[tuple[int, int]]] = {}

    def copy(self) -> AppliedUpdates:
        """Return a copy that shares nothing."""
        opened = {name: dict(shards) for name, shards in self.open.items()}
        return AppliedUpdates(opened, {name: list(ranges) for name, ranges in self.done.items()})

    def has(self, key: Key) -> bool:
        """Whether the records are counted. Raises Overlap if some are and others are not."""
        if _within(self.done.get(key.dataset, []), key.number):
            return True
        counted = self.open.get(key.dataset, {}).get(key.number)
        if counted is None or counted <= key.start:
            return False
        if counted < key.end:
            raise Overlap(
                f"records {key.start} to {key.end} of shard {key.number} of {key.dataset} are counted up to"
                f" {counted}: use the size of batches of before until this shard is done"
            )
        return True

    def add(self, key: Key) -> None:
        """Count the records."""
        self.open.setdefault(key.dataset, {})[key.number] = key.end

    def forget(self, done: Done) -> None:
        """Note shards that are done: their records are counted, wherever they brought an update."""
        opened, ranges = self.open.get(done.dataset, {}), self.done.setdefault(done.dataset, [])
        for number in done.numbers:
            opened.pop(number, None)
            if not _within(ranges, number):
                ranges.append((number, number + 1))
        ranges[:] = _merge(ranges)


def _within(ranges: list[tuple[int, int]], number: int) -> bool:
    place = bisect_right(ranges, (number, float("inf"))) - 1
    return place >= 0 and ranges[place][0] <= number < ranges[place][1]


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
