"""Trains next to nothing, for as long as a story wants: python steps.py --steps 120 --seconds 0.3 0.15

With --gate the last step waits for that file; once it is there, no step takes its time any more.
"""

import argparse
import time
from pathlib import Path

import torch

from elasticjob.trainer.torch import Elastic

BATCH = 12
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--seconds", type=float, nargs="+", default=[0.1], help="of a step, by 1, 2, … workers")
parser.add_argument("--gate", type=Path)
parser.add_argument("--leak", type=int, default=0, help="MiB that each step keeps")
parser.add_argument("--note", type=Path, help="gets the number of each step")
parser.add_argument("--checkpoint")
parser.add_argument("--save-every", type=int, default=1000)
args = parser.parse_args()


def take_time(number: int, world: int) -> None:
    """Be as slow as is wished, or as the gate wants."""
    if args.gate is None or not args.gate.exists():
        time.sleep(args.seconds[min(world, len(args.seconds)) - 1])
    while args.gate is not None and number >= args.steps and not args.gate.exists():
        time.sleep(0.01)


model, kept = torch.nn.Linear(1, 1), []
optimizer = torch.optim.SGD(model.parameters(), 0.0)
elastic = Elastic(model, optimizer, checkpoint=args.checkpoint, save_every=args.save_every)
data = elastic.loader(torch.utils.data.TensorDataset(torch.ones(BATCH * args.steps, 1)), global_batch=BATCH)
for step in elastic.steps(data):
    with step:
        for (batch,) in step:
            step.backward(elastic.model(batch).mean())
        take_time(step.number, elastic.world_size)
        kept.append(b"x" * (args.leak << 20))
    if args.note and step.done and elastic.is_main:
        with args.note.open("a") as file:
            print(step.number, file=file)
