"""
Train on a stream: readings of machines that are appended to several files, without an end and without epochs.

alone:          python train.py
two processes:  elasticjob run --nproc-per-node 2 train.py --steps 1000

Each worker reads its own ranges of the files. The position in the stream is part of the training's state:
after a loss, a change of the number of workers, or a new start from a checkpoint, every reading counts once.
"""

import argparse
import os
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from elasticjob.trainer.torch import Elastic

WIDTH = 48  # bytes of a line: 5 numbers and a newline, so that a line is found without an index

# -----------------------------------------------------------------------------
# settings
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "readings")
parser.add_argument("--files", type=int, default=4)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--global-batch", type=int, default=64, help="readings per step")
parser.add_argument("--shard", type=int, default=256, help="readings that are taken from one file in turn")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--workers", type=int, default=1, help="processes that read ahead")
parser.add_argument("--checkpoint", default="", help="folder; training goes on from its newest checkpoint")
parser.add_argument("--print-every", type=int, default=100, help="steps")
args = parser.parse_args()


# -----------------------------------------------------------------------------
# data: stands in for what other programs append to the files; made once
def make(file, seed):
    numbers = random.Random(seed)
    lines = []
    for _ in range(args.steps * args.global_batch // args.files + args.shard):
        x = [numbers.uniform(-1, 1) for _ in range(4)]
        y = x[0] * x[1] - x[2] + 0.5 * x[3]
        lines.append(" ".join(f"{value:8.5f}" for value in (*x, y)).ljust(WIDTH - 1) + "\n")
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_text("".join(lines))
    temporary.replace(file)


args.folder.mkdir(parents=True, exist_ok=True)
files = [args.folder / f"machine-{number}-{args.steps}.txt" for number in range(args.files)]
for number, file in enumerate(files):
    if not file.exists():
        make(file, number)


def read(part):
    """Return the readings of a range of one file."""
    with files[part.partition].open("rb") as file:
        file.seek(part.start * WIDTH)
        lines = file.read((part.stop - part.start) * WIDTH).decode().splitlines()
    numbers = [[float(word) for word in line.split()] for line in lines]
    return [(torch.tensor(x), torch.tensor([y])) for *x, y in numbers]


# -----------------------------------------------------------------------------
# model and training loop
torch.manual_seed(1337)
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
elastic = Elastic(model, optimizer, checkpoint=args.checkpoint or None)
data = elastic.stream(
    read,
    records=None,
    offsets=[0] * len(files),
    shard=args.shard,
    global_batch=args.global_batch,
    workers=args.workers,
)
for step in elastic.steps(data, steps=args.steps):
    with step:
        for x, y in step:
            step.backward(F.mse_loss(elastic.model(x), y))
    if elastic.is_main and step.done and step.number % args.print_every == 0:
        print(f"step {step.number}: loss {step.loss:.5f} after {elastic.progress.samples:,} readings")
