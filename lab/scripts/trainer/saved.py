"""A torchrun script with our Checkpoint says where it begins, its steps with their losses, what it has saved.

saved.py WHERE [--kind ddp|fsdp] [--steps N] [--every N] [--save-every N]

It ends after so many steps, or when there is a file `stop` in the folder $COUNTED, with its parameters. Every
worker computes the same, so their number changes nothing. A file `stand-STEP-RANK` has that worker wait in
that step to be killed.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from elasticjob.trainer.torch.checkpoint import Checkpoint
from lab.jobs.training.device import DEVICE
from lab.scripts.shared import numbers
from lab.scripts.told import FOLDER, Lines, stand

PAUSE = 0.02  # seconds of a step, beside its computation


def model_at_start() -> nn.Module:
    """Return the model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 33), nn.ReLU(), nn.Linear(33, 7)).double()


def loss_of(model: nn.Module, step: int, device: torch.device | None = None) -> torch.Tensor:
    """Return the loss of a step."""
    drawn = torch.Generator().manual_seed(step)
    records = (torch.randn(16, size, generator=drawn, dtype=torch.float64) for size in (10, 7))
    inputs, targets = (each.to(device) for each in records)
    return nn.functional.mse_loss(model(inputs), targets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("where")
    parser.add_argument("--kind", choices=("ddp", "fsdp"), default="fsdp")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=4)
    args, lines = parser.parse_args(), Lines()
    dist.init_process_group("nccl" if DEVICE.type == "cuda" else "gloo")
    rank, model = dist.get_rank(), model_at_start().to(DEVICE)
    if args.kind == "fsdp":
        fully_shard(model)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": model, "optimizer": optimizer}
    checkpoint = Checkpoint(args.where, state, every=args.every, save_every=args.save_every)
    step = checkpoint.load()
    memory = os.environ.get("ELASTICJOB_MEMORY")
    lines.say(prints=True, begins=step, rank=rank, world=dist.get_world_size(), memory=memory)
    ends = torch.zeros((), device=DEVICE)
    while not ends:
        step += 1
        stand(f"stand-{step}", rank)
        optimizer.zero_grad()
        loss = loss_of(model, step, DEVICE)
        torch.autograd.backward(loss)
        optimizer.step()
        lines.say(prints=True, step=step, rank=rank, loss=float(loss.detach()))
        ends.fill_(float((FOLDER / "stop").exists() or step == args.steps))
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        checkpoint.save(step, last=bool(ends))
        if checkpoint.is_due(step):
            lines.say(saved=step, rank=rank)
        time.sleep(PAUSE)
    lines.say(parameters=numbers(model), rank=rank, steps=step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
