"""A model that is divided over all workers, by fully_shard: a torchrun script with two lines of Checkpoint.

    elasticjob run --nproc-per-node 2 train.py /mnt/run

Workers that are started again find the state in memory, their own part or that of a lost node in another's; a
world of another size divides it anew.
"""

import argparse
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from elasticjob.trainer.torch.checkpoint import Checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", help="folder or URL of the checkpoints")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch", type=int, default=32, help="records of a step, of all workers together")


class Block(nn.Module):
    """Attention and a perceptron, each with a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.perceptron(self.norms[1](x))


class Sorter(nn.Module):
    """Learns to sort eight digits."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.digits, self.places = nn.Embedding(10, width), nn.Embedding(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 10)

    def forward(self, digits: torch.Tensor) -> torch.Tensor:
        x = self.digits(digits) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    """Train; each worker takes its share of the records of a step, which are made of the step's number."""
    args = parser.parse_args()
    dist.init_process_group("gloo" if not torch.cuda.is_available() else None)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Sorter()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = Checkpoint(
        args.checkpoint, {"model": model, "optimizer": optimizer}, every=10, save_every=100
    )
    for step in checkpoint.steps(args.steps):
        records = torch.randint(10, (args.batch, 8), generator=torch.Generator().manual_seed(step))
        mine = records[rank::world]
        logits = model(mine).flatten(0, 1)
        loss = F.cross_entropy(logits, mine.sort().values.flatten().to(logits.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(json.dumps({"step": step, "world": world, "loss": round(loss.item(), 4)}), flush=True)
    dist.destroy_process_group()


main()
