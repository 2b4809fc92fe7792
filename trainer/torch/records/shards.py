"""Shards as a dataset of torch: `DataLoader(ShardDataset(Dataset(…), read), batch_size=64)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from elasticjob.trainer.shards import Dataset, Shard, Shards, Way


class ShardDataset(IterableDataset[Any]):
    """The records of the shards that the master deals to this process, or to each process of its DataLoader.

    `read` returns the records of a shard. A shard is reported as done when all its records were handed out
    and the next one is asked for. A process of a DataLoader reads ahead of the training: what it has read and
    the loop has not used yet is lost with the worker. To count only what a step has used, iterate over
    `Shards` in the loop itself.
    """

    def __init__(
        self, dataset: Dataset, read: Callable[[Shard], Iterable[Any]], *, way: Way | None = None
    ) -> None:
        self.dataset, self.read, self.way = dataset, read, way

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        with Shards(self.dataset, worker=str(info.id) if info else "", way=self.way) as shards:
            for shard in shards:
                yield from self.read(shard)
