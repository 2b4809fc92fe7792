"""The same training with NVRx's in-process restart, as in its example: only the loop is wrapped."""

import os
import sys
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from torch import Tensor, optim
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from lab.scripts.told import Steps
from lab.scripts.work import BATCH, chosen

SAVE_EVERY = 20
path = sys.argv[1] if len(sys.argv) > 1 else ""
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

work = chosen()
steps = Steps()
optimizer = optim.AdamW(work.model.parameters())
keys = TCPStore(host, port, int(os.environ["WORLD_SIZE"]), os.environ["RANK"] == "0")


def train(call: inprocess.CallWrapper | None = None) -> None:
    """Train for ever, from the newest checkpoint; after a fault the ranks that are left call it again."""
    assert call is not None
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = PrefixStore(str(call.iteration), keys)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=10))
    step = 0
    if path and os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        work.model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    ddp = DDP(work.model)
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(work.records)
    loader = DataLoader(work.records, batch_size=BATCH, sampler=sampler)
    for epoch in count():
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = work.loss(ddp(inputs), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            step += 1
            steps.done(step, rank, world, call.iteration)
            if path and rank == 0 and step % SAVE_EVERY == 0:
                state = {"model": work.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                with call.atomic():
                    torch.save(state, path + ".tmp")
                    os.replace(path + ".tmp", path)


inprocess.Wrapper(store_kwargs={"port": port + 1})(train)()
