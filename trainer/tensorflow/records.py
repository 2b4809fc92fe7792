"""Shards as a dataset of TensorFlow: `shard_dataset(Dataset(…), read, signature).batch(64).prefetch(2)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from elasticjob.trainer.shards import Dataset, Shard, Shards, Way


def shard_dataset(
    dataset: Dataset,
    read: Callable[[Shard], Iterable[Any]],
    output_signature: Any,
    *,
    way: Way | None = None,
) -> Any:
    """Return a `tf.data.Dataset` of the records of the shards that the master deals to this process.

    `read` returns the records of a shard, as `output_signature` (`tf.TensorSpec`) describes them. A shard is
    reported as done when all its records were handed out and `Dataset.batch` more, or before this waits for
    the next one.
    """

    def records() -> Iterator[Any]:
        with Shards(dataset, way=way) as shards:
            yield from shards.records(read, unused=dataset.batch)

    return tf.data.Dataset.from_generator(records, output_signature=output_signature)
