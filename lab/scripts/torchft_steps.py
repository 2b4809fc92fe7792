"""The same training with torchft, as in its example: a replica group per worker, its DDP and optimizer."""

import os
from datetime import timedelta
from itertools import count

import torch
from torch.utils.data import DataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from lab.scripts.work import BATCH, Training

group = int(os.environ["REPLICA_GROUP_ID"])
training = Training()
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
    min_replica_size=1,
    load_state_dict=training.take,
    state_dict=training.state,
    replica_id=f"bench_{group}",
    timeout=timedelta(seconds=30),
)
ddp = DistributedDataParallel(manager, training.model)
training.optimizer = optimizer = Optimizer(manager, training.optimizer)
sampler = DistributedSampler(
    training.records, replica_rank=group, num_replica_groups=2, group_rank=0, num_replicas=1
)
loader = DataLoader(training.records, batch_size=BATCH, sampler=sampler)
for epoch in count():
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = training.work.loss(ddp(inputs), labels)
        torch.autograd.backward(loss)
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:
            training.told.done(manager.current_step(), group, manager.num_participants(), manager._quorum_id)
