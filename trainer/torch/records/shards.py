"""Shards as a dataset of torch: `DataLoader(ShardDataset(Dataset(…), read), batch_size=64)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from torch.utils.data import IterableDataset, get_worker_info

from elasticjob.trainer.shards import Dataset, Shard, Shards, Way

BEGUN: Final = 3  # batches that a process has begun when the loop has used the one before: torch's 2, and 1


class ShardDataset(IterableDataset[Any]):
    """The records of the shards that the master deals to this process, or to each process of its DataLoader.

    `read` returns the records of a shard. The shard is reported as done when the loop has used them, as far
    as that can be told: when `unused` more were handed out. That is a batch, `Dataset.batch`, or three of
    them for a process of a DataLoader; with another `prefetch_factor` give (prefetch_factor + 1) batches.
    Before a wait for the next shard, as at the end of the data, all that was handed out is reported.
    """

    def __init__(
        self,
        dataset: Dataset,
        read: Callable[[Shard], Iterable[Any]],
        *,
        unused: int | None = None,
        way: Way | None = None,
    ) -> None:
        self.dataset, self.read, self.way, self.unused = dataset, read, way, unused

    def __iter__(self) -> Iterator[Any]:
        info, unused = get_worker_info(), self.unused
        if unused is None:
            unused = self.dataset.batch * (BEGUN if info else 1)
        name = str(info.id) if info else ""
        with Shards(self.dataset, worker=name, yields=bool(info), way=self.way) as shards:
            yield from shards.records(self.read, unused=unused)
