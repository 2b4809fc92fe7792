"""A torchrun script with a model of 400 MB, which saves every few steps as its launcher lets it.

Under `elasticjob run` by our Checkpoint to memory, under DLRover by its own to memory, else by torch.save to
the path that is given. It tells how long each save held it up, beside a copy of the same bytes from memory to
memory right after it, and how long it took to load the newest one.
"""

import os
import sys
import time
from functools import cache
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from lab.scripts.told import say
from lab.scripts.work import BATCH, Training

SAVE_EVERY = 10
PAUSE = 0.02  # seconds of a step, beside its computation

path = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
training = Training("large")
model = training.model
has_peer = find_spec("dlrover") is not None
if "ELASTICJOB_MEMORY" in os.environ:
    from elasticjob.trainer.torch.checkpoint import Checkpoint

    ours = Checkpoint(
        "memory://",
        {"model": model, "optimizer": training.optimizer},
        every=SAVE_EVERY,
        save_every=SAVE_EVERY,
    )
elif has_peer:
    from dlrover.trainer.torch.flash_checkpoint.checkpointer import (
        StorageType,
    )
    from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

    peer = DdpCheckpointer(path + ".dlrover")


def load() -> int:
    """Load the newest checkpoint; return its step, 0 if there is none."""
    if "ELASTICJOB_MEMORY" in os.environ:
        return ours.load()
    if has_peer:
        training.take(peer.load_checkpoint() or {})
    else:
        training.load(path)
    return training.step


def save(step: int) -> None:
    """Save the state after a step."""
    if "ELASTICJOB_MEMORY" in os.environ:
        ours.save(step)
        return
    training.step = step
    if has_peer:
        peer.save_checkpoint(
            step, training.state(), f"{path}.dlrover/{step}", storage_type=StorageType.MEMORY
        )
    elif rank == 0:
        training.save(path)


@cache
def model_and_room() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the model's 400 MB, and as much memory that is in use already."""
    mine = model.get_parameter("frozen").detach()
    return mine, mine.clone()


def memcpy() -> float:
    """Return how long a copy of the model takes, from memory to memory."""
    mine, room = model_and_room()
    began = time.perf_counter()
    room.copy_(mine)
    return time.perf_counter() - began


began = time.perf_counter()
first = load()
restore = time.perf_counter() - began
ddp = DDP(model)
step = first
while True:
    chosen = torch.randint(0, len(training.records), (BATCH,))
    inputs, labels = training.records[chosen]
    training.learn(ddp, inputs, labels)
    time.sleep(PAUSE)
    step += 1
    block = copy = None
    if step % SAVE_EVERY == 0:
        began = time.perf_counter()
        save(step)
        block = time.perf_counter() - began
        copy = memcpy() if rank == 0 else None
    say(
        at=time.time(),
        step=step,
        rank=rank,
        world=world,
        life=os.getpid(),
        block=block,
        memcpy=copy,
        first=first,
        restore=restore,
    )
