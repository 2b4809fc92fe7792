"""Consumers of shards, without steps in common: `DataLoader(ShardDataset(…), num_workers=2)`.

Of two outputs of one shard that of the larger lease counts, so the lease is written with each record.
"""

from collections.abc import Iterator

from torch.utils.data import DataLoader

from elasticjob.trainer.shards import Dataset, Shard
from elasticjob.trainer.torch.records.shards import ShardDataset
from lab.scripts.loops.run import args, pace, say, slow

SHARD = 10


def read(shard: Shard) -> Iterator[tuple[int, int, int, int]]:
    """Yield the records of a shard, each with where it is from."""
    slow()
    for record in shard.records:
        yield shard.epoch, shard.number, shard.lease, record


data = Dataset(name="life", size=args.records, shard=SHARD, epochs=args.epochs)
say(begins=0)
for batch in DataLoader(ShardDataset(data, read), batch_size=5, num_workers=2):
    pace()
    for epoch, number, lease, record in zip(*(each.tolist() for each in batch), strict=True):
        say(shard=number, lease=lease, epoch=epoch, record=record)
