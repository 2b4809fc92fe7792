"""A loop of accelerate with checkpoints in memory: another class of Accelerator, and its epochs.

elasticjob run --nproc-per-node 2 train.py /mnt/run
"""

import argparse
import json

import torch
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticjob.trainer.integrations.accelerate import ElasticAccelerator

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint", help="folder or URL of the checkpoints")
parser.add_argument("--epochs", type=int, default=3)


def main() -> None:
    """Learn a plane."""
    args = parser.parse_args()
    accelerator = ElasticAccelerator(
        args.checkpoint, every=5, save_every=50, cpu=not torch.cuda.is_available()
    )
    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    set_seed(0, device_specific=True)  # each worker has random numbers of its own
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step = None
    for epoch, batches in accelerator.epochs(loader, args.epochs):
        for inputs, targets in batches:
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if accelerator.is_main_process:
                step = accelerator.steps_done + 1
                print(json.dumps({"step": step, "epoch": epoch, "loss": round(loss.item(), 6)}), flush=True)
    accelerator.end_training()


main()
