"""Factors of users and items on parameter servers, which may come, go, move and die while this trains.

    python train.py --records 200000 --epochs 2

Ratings are made here: a user likes an item as much as their hidden tastes agree. Each batch pulls the rows
that it needs, and pushes their gradients; a batch counts once, however often it is sent.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import Adagrad, Normal, Store, Table

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--records", type=int, default=200_000)
parser.add_argument("--users", type=int, default=5_000)
parser.add_argument("--items", type=int, default=1_000)
parser.add_argument("--width", type=int, default=16, help="columns of a row")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=500)
parser.add_argument("--save-every", type=float, default=60.0, help="seconds between checkpoints")
args = parser.parse_args()


def ratings(records: np.ndarray) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Return users, items and scores of these records, the same on every worker."""
    tastes = np.random.default_rng(0)
    user_tastes, item_tastes = tastes.normal(size=(args.users, 4)), tastes.normal(size=(args.items, 4))
    users, items = (records * 7919) % args.users, (records * 104729 + records // args.users) % args.items
    scores = (user_tastes[users] * item_tastes[items]).sum(axis=1)
    return users, items, torch.from_numpy(scores.astype(np.float32))


tables = [
    Table("users", args.width, Adagrad(0.1), Normal(0.3)),
    Table("items", args.width, Adagrad(0.1), Normal(0.3), seed=1),
]
data = Dataset(
    name="ratings", size=args.records, shard=5_000, epochs=args.epochs, shuffle=True, batch=args.batch
)
number = 0  # others may have taken all records
with Store(tables, data, save_every=args.save_every) as store:
    for number, batch in enumerate(store.batches(args.batch), start=1):
        users, items, scores = ratings(np.asarray(batch.records))
        of_users = torch.from_numpy(store.pull("users", users)).requires_grad_()
        of_items = torch.from_numpy(store.pull("items", items)).requires_grad_()
        loss = torch.nn.functional.mse_loss((of_users * of_items).sum(dim=1), scores, reduction="sum")
        loss.backward()
        batch.push({"users": (users, of_users.grad), "items": (items, of_items.grad)})
        if number % 50 == 0:
            print(f"batch {number}: loss {loss.item() / len(scores):.3f}", flush=True)
print(f"this worker made {number} batches")
