"""The same training with NVRx's in-process restart, as in its example: only the loop is wrapped."""

import os
import sys
from datetime import timedelta

import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from lab.scripts.work import BATCH, SAVE_EVERY, Training

path = sys.argv[1] if len(sys.argv) > 1 else ""
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

training = Training()
keys = TCPStore(host, port, int(os.environ["WORLD_SIZE"]), os.environ["RANK"] == "0")


def train(call: inprocess.CallWrapper | None = None) -> None:
    """Train for ever, from the newest checkpoint; after a fault the ranks that are left call it again."""
    assert call is not None
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = PrefixStore(str(call.iteration), keys)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=10))
    training.load(path)
    loader = DataLoader(training.records, batch_size=BATCH, sampler=DistributedSampler(training.records))
    for step in training.steps(DDP(training.model), loader):
        training.told.done(step, rank, world, call.iteration)
        if path and rank == 0 and step % SAVE_EVERY == 0:
            with call.atomic():
                training.save(path)


inprocess.Wrapper(store_kwargs={"port": port + 1})(train)()
