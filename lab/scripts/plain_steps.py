"""The same training as an ordinary torchrun script, bare DDP; given a path it saves there and resumes."""

import os
import sys

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from lab.scripts.work import BATCH, SAVE_EVERY, Training

path = sys.argv[1] if len(sys.argv) > 1 else ""

dist.init_process_group("gloo")
training = Training()
training.load(path)
loader = DataLoader(training.records, batch_size=BATCH, sampler=DistributedSampler(training.records))
for step in training.steps(DDP(training.model), loader):
    training.told.done(step, dist.get_rank(), dist.get_world_size(), os.getpid())
    if path and dist.get_rank() == 0 and step % SAVE_EVERY == 0:
        training.save(path)
