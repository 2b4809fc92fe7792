"""Shards as a dataset of TensorFlow: `shard_dataset(Dataset(…), read, signature).batch(64).prefetch(2)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import tensorflow as tf

from elasticjob.trainer.shards import Dataset, Shard, Shards, Way

OF_A_SHARD: Final = (
    *("apply", "batch", "filter", "flat_map", "interleave", "map", "padded_batch", "prefetch"),
    *("ragged_batch", "rebatch", "shuffle", "unbatch", "with_options"),
)
"""Methods of tf.data.Dataset that mean the same for the records of one shard as for those of all."""


@dataclass
class _Source:
    """Where records come from; `shard` is that of which they are at present."""

    dataset: Dataset
    read: Callable[[Shard], Iterable[Any]]
    way: Way | None
    shard: Shard | None = None

    def records(self) -> Iterator[Any]:
        assert self.shard
        yield from self.read(self.shard)


@dataclass(frozen=True)
class ShardDataset:
    """The records of the shards that the master deals to this process, after what its methods do with them.

    Methods are those of `tf.data.Dataset`, and have what they hold of one shard at a time.
    """

    source: _Source
    elements: Any
    """A `tf.data.Dataset`: those of the source's shard."""

    def __getattr__(self, name: str) -> Callable[..., ShardDataset]:
        if name not in OF_A_SHARD:
            raise AttributeError(
                f"shard_dataset has no {name}: its methods are for the records of one shard each, which are "
                f"{', '.join(OF_A_SHARD)}; do what is for all of them in the loop"
            )
        method = getattr(self.elements, name)

        def do(*arguments: Any, **named: Any) -> ShardDataset:
            self._check(inspect.signature(method).bind(*arguments, **named).arguments)
            return replace(self, elements=method(*arguments, **named))

        return do

    def __iter__(self) -> Iterator[Any]:
        return self._elements(lambda: self.elements)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Yield elements as arrays of numpy."""
        return self._elements(self.elements.as_numpy_iterator)

    def _elements(self, of_shard: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        source = self.source
        if source.shard is not None:
            raise RuntimeError(f"dataset {source.dataset.name} is iterated twice at once: make another one")
        with Shards(source.dataset, way=source.way) as shards:
            try:
                for source.shard in shards:
                    for element in of_shard():
                        with shards.busy():
                            yield element
            finally:
                source.shard = None

    def _check(self, given: dict[str, Any]) -> None:
        """Raise ValueError if a method would drop the last records of each shard."""
        size, shard = given.get("batch_size"), self.source.dataset.shard
        if given.get("drop_remainder") and (not isinstance(size, int) or shard % size):
            raise ValueError(
                f"drop_remainder with batches of {size} drops the last records of each shard of {shard}: "
                "leave it out, or give Dataset a `shard` that is a multiple of the batch"
            )


def shard_dataset(
    dataset: Dataset,
    read: Callable[[Shard], Iterable[Any]],
    output_signature: Any,
    *,
    way: Way | None = None,
) -> ShardDataset:
    """Return the records of the shards that the master deals to this process, for a loop of yours.

    `read` returns the records of a shard, as `output_signature` (`tf.TensorSpec`) describes them.

        data = Dataset(name="reviews", size=1_000_000, shard=6_400)
        batches = shard_dataset(data, read, tf.TensorSpec([], tf.int64)).shuffle(1_000).batch(64).prefetch(2)
        for batch in batches:
            train(batch)

    A shard is done when the loop asks for what follows its last batch: whatever the methods hold, all its
    records were used then. So a batch or a shuffle ends with its shard, which is a multiple of the batch at
    best; and the shard of a worker that was killed comes again from its beginning.
    """
    source = _Source(dataset, read, way)
    elements = tf.data.Dataset.from_generator(source.records, output_signature=output_signature)
    return ShardDataset(source, elements)
