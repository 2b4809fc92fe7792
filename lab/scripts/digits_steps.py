"""The training of examples/digits/train.py as an ordinary torchrun script: bare DDP, saves and resumes.

Rank 0 writes each step to $ELASTICJOB_STEPS, in the lines of the training library; a round is a start.
"""

import json
import os
import time
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GLOBAL_BATCH, WIDTH, SEED = 48, 32, 1337
SAVE_EVERY = int(os.environ["SAVE_EVERY"])
checkpoint, record = Path(os.environ["CHECKPOINT"]), Path(os.environ["ELASTICJOB_STEPS"])

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(SEED)
images, labels = load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16.0
labels = torch.tensor(labels)
kept = torch.arange(len(labels)) % 5 != 0
train = TensorDataset(images[kept], labels[kept])
convolutions = (nn.Conv2d(1, WIDTH, 3, padding=1), nn.ReLU(), nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1))
hidden = (nn.Flatten(), nn.Linear(2 * WIDTH * 4 * 4, 128), nn.ReLU(), nn.Dropout(0.2))
model = nn.Sequential(*convolutions, nn.ReLU(), nn.MaxPool2d(2), *hidden, nn.Linear(128, 10))
optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
step = 0
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]

round_ = 1
if record.exists() and (lines := record.read_bytes().splitlines()):
    round_ += json.loads(lines[-1])["round"]
file = record.open("ab", buffering=0) if rank == 0 else None
ddp = DDP(model)
sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(train, seed=SEED)
loader = DataLoader(train, batch_size=GLOBAL_BATCH // world, sampler=sampler)
for epoch in count(step // len(loader)):
    sampler.set_epoch(epoch)
    for inputs, wanted in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(inputs), wanted)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if file:
            done = {"at": time.time(), "round": round_, "step": step, "world": world, "loss": loss.item()}
            file.write(json.dumps(done).encode() + b"\n")
        if rank == 0 and step % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            unfinished = checkpoint.with_suffix(".tmp")
            torch.save(state, unfinished)
            unfinished.replace(checkpoint)
