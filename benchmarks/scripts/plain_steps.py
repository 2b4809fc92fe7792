"""The same training as an ordinary torchrun script that saves and resumes; prints each step with the time."""

import json
import os
import sys
import time
from itertools import count

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.scripts.net import dataset, net

SAVE_EVERY = 20
path = sys.argv[1]

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = net()
optimizer = optim.AdamW(model.parameters())
step = 0
if os.path.exists(path):
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
ddp = DDP(model)
records = dataset()
sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(records)
loader = DataLoader(records, batch_size=16, sampler=sampler)
for epoch in count():
    sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(images), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        step += 1
        record = {"at": time.time(), "step": step, "rank": rank, "world": world, "life": os.getpid()}
        print(json.dumps({**record, "pid": os.getpid()}) + "\n", end="", flush=True)
        if rank == 0 and step % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, path + ".tmp")
            os.replace(path + ".tmp", path)
