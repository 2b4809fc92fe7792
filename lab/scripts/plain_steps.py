"""The same training as an ordinary torchrun script, bare DDP; given a path it saves there and resumes."""

import os
import sys
from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from lab.scripts.told import Steps
from lab.scripts.work import BATCH, chosen

SAVE_EVERY = 20
path = sys.argv[1] if len(sys.argv) > 1 else ""

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
work = chosen()
steps = Steps()
optimizer = optim.AdamW(work.model.parameters())
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
        steps.done(step, rank, world, os.getpid())
        if path and rank == 0 and step % SAVE_EVERY == 0:
            state = {"model": work.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, path + ".tmp")
            os.replace(path + ".tmp", path)
