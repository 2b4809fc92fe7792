"""A model that fully_shard divides over the workers of a node, and that each node has whole.

    elasticjob run --nproc-per-node 2 elastic.py

Nodes come and go without a restart: those that stay keep their processes and their parts, and a new node gets
its parts from another one. train.py beside this divides over all workers, and starts them again instead.
"""

import argparse

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.utils.data import Dataset

from elasticjob.trainer.torch import Elastic, node_mesh

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", help="folder or URL of the checkpoints")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch", type=int, default=64, help="records of a step, of all workers together")


class Digits(Dataset[torch.Tensor]):
    """Eight digits at random, made of their number."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(10, (8,), generator=torch.Generator().manual_seed(index))


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
    """Train; the loop is that of a model that is not divided."""
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Sorter()
    mesh = node_mesh()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    elastic = Elastic(model, optimizer, checkpoint=args.checkpoint)
    data = elastic.loader(Digits(), global_batch=args.batch)
    for step in elastic.steps(data, steps=args.steps):
        with step:
            for digits in step:
                logits = elastic.model(digits).flatten(0, 1)
                step.backward(F.cross_entropy(logits, digits.sort().values.flatten()))
            step.clip_grad_norm_(1.0)
        if step.done and elastic.is_main and step.number % 10 == 0:
            print(f"step {step.number}: loss {step.loss:.4f}, {elastic.world_size} workers", flush=True)


main()
