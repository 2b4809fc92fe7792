"""Consumers of shards, without steps in common: `DataLoader(ShardDataset(…), num_workers=2)`.

Of two outputs of one shard that of the larger lease counts, so the lease is written with each record.
"""

from collections.abc import Iterator

from torch.utils.data import DataLoader

from elasticjob.trainer.shards import Dataset, Shard
from elasticjob.trainer.torch.records.shards import ShardDataset
from lab.scripts.life import told

SHARD = 10


def read(shard: Shard) -> Iterator[tuple[int, int, int, int]]:
    """Yield the records of a shard, each with where it is from."""
    told.slow()
    for record in shard.records:
        yield shard.epoch, shard.number, shard.lease, record


def main() -> None:
    args, lines = told.arguments(), told.Told()
    data = Dataset(name="life", size=args.records, shard=SHARD, epochs=args.epochs)
    lines.say(begins=0, round=told.round_of())
    for epochs, numbers, leases, records in DataLoader(ShardDataset(data, read), batch_size=5, num_workers=2):
        lines.step()
        for epoch, number, lease, record in zip(
            epochs.tolist(), numbers.tolist(), leases.tolist(), records.tolist(), strict=True
        ):
            lines.say(shard=number, lease=lease, epoch=epoch, record=record)


if __name__ == "__main__":
    main()
