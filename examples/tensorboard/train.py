"""What a job lives through, beside its loss, in TensorBoard: changes of the world, restarts, goodput.

elasticjob run --nproc-per-node 2 train.py --logs runs/plane          # and: tensorboard --logdir runs

For Weights & Biases, replace `Board` by this (`resume` lets the next main worker go on in the same run):

    run = wandb.init(project="plane", id=os.environ["TORCHELASTIC_RUN_ID"], resume="allow")
    run.log({"loss": step.loss, "goodput": goodput()}, step=step.number)
"""

import argparse
import json
import os
import sys
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

import torch
from torch import nn
from torch.utils.data import TensorDataset

from elasticjob.trainer.link.address import NoMaster, way_from
from elasticjob.trainer.torch import Elastic

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    sys.exit("train.py: error: this example writes for TensorBoard: pip install tensorboard")

parser = argparse.ArgumentParser()
parser.add_argument("--logs", default="runs/plane", help="folder for TensorBoard, the same for all nodes")
parser.add_argument("--epochs", type=int, default=20)


class Board:
    """Writes what the main worker knows; another worker may be the main one in the next world."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None

    def scalars(self, step: int, **values: float | None) -> None:
        """Write values at a step."""
        self._writer = self._writer or SummaryWriter(self._folder, flush_secs=5)
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, step)

    def text(self, step: int, sentence: str) -> None:
        """Write a sentence at a step."""
        self._writer = self._writer or SummaryWriter(self._folder, flush_secs=5)
        self._writer.add_text("changes", sentence, step)


def goodput() -> float | None:
    """Return the share of all workers' time that made steps which count, as the job's master knows it."""
    with suppress(NoMaster, OSError):
        address = way_from(os.environ).address
        with urlopen(f"http://{address}/status", timeout=1) as page:
            ratio: float | None = json.load(page)["goodputRatio"]
            return ratio
    return None


def main() -> None:
    """Learn a plane, and write down how it went."""
    args = parser.parse_args()
    board = Board(args.logs)
    torch.manual_seed(0)
    inputs = torch.randn(2048, 8)
    plane = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def changed(round_: int, world: int, lost: tuple[str, ...]) -> None:
        """Called on each worker when it has entered a world; `lost` names the nodes that left unplanned."""
        if elastic.is_main:
            step, left = elastic.progress.step, f", lost {', '.join(lost)}" if lost else ""
            board.scalars(step, round=round_, world_size=world, nodes_lost=len(lost))
            board.text(step, f"round {round_}: {world} workers{left}")

    elastic = Elastic(model, optimizer, on_change=changed)
    data = elastic.loader(plane, global_batch=64)
    for step in elastic.steps(data, epochs=args.epochs):
        with step:
            for inputs, targets in step:
                step.backward(nn.functional.mse_loss(elastic.model(inputs), targets))
        if step.done and elastic.is_main:
            board.scalars(step.number, loss=step.loss, goodput=goodput() if step.ends_epoch else None)
            if step.ends_epoch:
                print(f"step {step.number}: loss {step.loss:.4f}, {elastic.world_size} worker(s)", flush=True)


main()
