"""A plain loop over epochs and a DataLoader that goes on where it was: nothing of ours but `Checkpoint`.

elasticjob run --nproc-per-node 2 train.py /mnt/run        # torchrun runs it too
"""

import argparse
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from elasticjob.trainer.torch.checkpoint import Checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", help="folder or URL of the checkpoints")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--every", type=int, default=5, help="steps between copies in memory")


def main() -> None:
    """Learn a plane."""
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    checkpoint = Checkpoint(args.checkpoint, state, every=args.every, save_every=10 * args.every)
    step = begin = checkpoint.load()
    for epoch in range(begin // len(loader), args.epochs):
        sampler.set_epoch(epoch)
        seen = max(0, begin - epoch * len(loader))
        for x, y in itertools.islice(loader, seen, None):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % len(loader) == 0:
                scheduler.step()
                if dist.get_rank() == 0:
                    print(f"step {step}: epoch {epoch}, loss {loss.item():.10f}", flush=True)
            checkpoint.save(step)
    checkpoint.save(step, last=True)
    dist.destroy_process_group()


main()
