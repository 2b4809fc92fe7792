"""
The same digits with nothing of elasticjob in the script: an ordinary torchrun script that saves and resumes.

elasticjob run --nproc-per-node 2 plain_ddp.py --checkpoint /tmp/digits.pt

When the world changes, it is stopped and started again, from a process that has torch imported already.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--checkpoint", default="digits.pt")
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16.0
labels = torch.tensor(labels)
test = torch.arange(len(labels)) % 5 == 0
train = TensorDataset(images[~test], labels[~test])
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=args.batch, sampler=sampler)

torch.manual_seed(1337)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, 128),
    nn.ReLU(),
    nn.Linear(128, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
first = 0
if os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1
ddp = DDP(model)
print(f"rank {rank} of {world} starts with epoch {first}", flush=True)

for epoch in range(first, args.epochs):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}, {world} worker(s)", flush=True)
        temporary = args.checkpoint + ".tmp"
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary
        )
        os.replace(temporary, args.checkpoint)

if rank == 0:
    with torch.no_grad():
        accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
    print(f"done: {accuracy:.1%} of {int(test.sum())} test images read correctly", flush=True)
dist.destroy_process_group()
