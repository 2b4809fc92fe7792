"""A torchrun script with two lines of Checkpoint; says in JSON where it begins and what it has learnt.

saved.py WHERE ddp|fsdp STEPS FOLDER STEP…

At each of the last ones rank 1 stands still the first time it gets there, until it is killed: there is a file
in FOLDER then.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from elasticjob.trainer.torch.checkpoint import Checkpoint
from lab.jobs.training.device import DEVICE


def say(**words: object) -> None:
    print(json.dumps({"rank": dist.get_rank(), "pid": os.getpid(), **words}), flush=True)


def main(where: str, kind: str, total: int, folder: Path, stops: list[str]) -> None:
    dist.init_process_group("nccl" if DEVICE.type == "cuda" else "gloo")
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(10, 33), nn.ReLU(), nn.Linear(33, 7)).to(DEVICE)
    model: nn.Module = layers
    if kind == "fsdp":
        fully_shard(layers)
    else:
        model = DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 10, device=DEVICE), torch.randn(64, 7, device=DEVICE)
    checkpoint = Checkpoint(where, {"model": model, "optimizer": optimizer}, every=5, save_every=20)
    begins = None
    for step in checkpoint.steps(total):
        if begins is None:
            begins = step
            say(begins=step, world=dist.get_world_size(), memory=os.environ.get("ELASTICJOB_MEMORY"))
        if dist.get_rank() == 1 and str(step) in stops and not (mark := folder / str(step)).exists():
            mark.touch()
            say(stands=step)
            signal.pause()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        torch.autograd.backward(loss)
        optimizer.step()
        say(step=step, loss=float(loss.detach()))
    dist.destroy_process_group()


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
