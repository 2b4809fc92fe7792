"""The same training with torchft, as in its example: a replica group per worker, its DDP and optimizer."""

import os
from datetime import timedelta
from itertools import count
from typing import Any

import torch
from torch import optim
from torch.utils.data import DataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from lab.scripts.told import Steps
from lab.scripts.work import BATCH, chosen

group = int(os.environ["REPLICA_GROUP_ID"])
work = chosen()
steps = Steps()


def load(saved: dict[str, Any]) -> None:
    """Take the state of another group."""
    work.model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


def state() -> dict[str, Any]:
    """Return the state for a group that comes."""
    return {"model": work.model.state_dict(), "optimizer": optimizer.state_dict()}


manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
    min_replica_size=1,
    load_state_dict=load,
    state_dict=state,
    replica_id=f"bench_{group}",
    timeout=timedelta(seconds=30),
)
ddp = DistributedDataParallel(manager, work.model)
optimizer = Optimizer(manager, optim.AdamW(work.model.parameters()))
sampler = DistributedSampler(
    work.records, replica_rank=group, num_replica_groups=2, group_rank=0, num_replicas=1
)
loader = DataLoader(work.records, batch_size=BATCH, sampler=sampler)
for epoch in count():
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = work.loss(ddp(inputs), labels)
        torch.autograd.backward(loss)
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:
            steps.done(manager.current_step(), group, manager.num_participants(), manager._quorum_id)
