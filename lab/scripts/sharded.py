"""A divided model (FSDP2) that is saved every few steps, until there is a file `stop` in the folder $LINEAGE.

sharded.py WHERE

Each worker writes to a file of its own there where its life begins, its steps with their losses, and what it
has saved; at the end the parameters. Every worker computes the same, so their number changes nothing.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from elasticjob.trainer.torch.checkpoint import Checkpoint
from lab.scripts.shared import numbers

PAUSE = 0.02  # seconds of a step, beside its computation


def model_at_start() -> nn.Module:
    """Return the model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 33), nn.ReLU(), nn.Linear(33, 7)).double()


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    """Return the loss of a step."""
    drawn = torch.Generator().manual_seed(step)
    inputs, targets = (torch.randn(16, size, generator=drawn, dtype=torch.float64) for size in (10, 7))
    return nn.functional.mse_loss(model(inputs), targets)


def main(where: str) -> None:
    folder = Path(os.environ["LINEAGE"])
    file = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("ab", buffering=0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def write(**line: Any) -> None:
        file.write(json.dumps({**line, "rank": rank, "at": time.time()}).encode() + b"\n")

    model = model_at_start()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpoint = Checkpoint(where, {"model": model, "optimizer": optimizer}, every=2, save_every=4)
    step = checkpoint.load()
    write(begins=step, world=dist.get_world_size())
    ends = torch.zeros(())
    while not ends:
        step += 1
        optimizer.zero_grad()
        loss = loss_of(model, step)
        torch.autograd.backward(loss)
        optimizer.step()
        write(step=step, loss=float(loss.detach()))
        ends.fill_(float((folder / "stop").exists()))
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        checkpoint.save(step, last=bool(ends))
        if checkpoint.is_due(step):
            write(saved=step)
        time.sleep(PAUSE)
    write(parameters=numbers(model), steps=step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
