"""The model and the records of the loops for torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset, Sampler

from lab.scripts.loops import run
from lab.scripts.loops.run import args, is_other
from lab.scripts.shared import CLASSES, WIDTH, problem, start

torch.set_num_threads(1)


class Numbers(Dataset[dict[str, Tensor]]):
    """Records that are their number, and slow to read now and then."""

    def __len__(self) -> int:
        return int(args.records)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        run.slow()
        return {"index": torch.tensor(index)}


class Backwards(Sampler[int]):
    """The last record first."""

    def __len__(self) -> int:
        return int(args.records)

    def __iter__(self) -> Iterator[int]:
        return reversed(range(args.records))


def order() -> dict[str, Any]:
    """Return the arguments of a DataLoader for the order of the records."""
    if args.sampler == "reversed":
        return {"sampler": Backwards()}
    return {"shuffle": args.sampler == "shuffle"}


class Counting(nn.Module):
    """Has a number for each record, which a step that takes it raises by one: at the end all are the epochs.

    `touched` counts passes, `other` depends on their order, and beside them a network learns classes.
    """

    touched: Tensor

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(max(96, args.records) if not is_other() else 7))
        self.other = nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("touched", torch.zeros(1))
        self.network = nn.Sequential(nn.Linear(WIDTH, 6), nn.Dropout(dropout), nn.Linear(6, CLASSES))
        start(self.network)
        inputs, self.labels = problem(args.records)
        self.inputs = inputs.float()
        if args.half:
            self.halves = nn.Parameter(torch.zeros(3, dtype=getattr(torch, args.half)))

    def forward(self, index: Tensor) -> dict[str, Tensor]:
        """Return the loss: its gradient is -1 for each record that is taken, of as many as a batch has."""
        self.touched += 1
        far = (self.other - index.float().mean() / 50).square().sum()
        loss = far / 50 - self.seen[index].mean()
        loss = loss + F.cross_entropy(self.network(self.inputs[index]), self.labels[index])
        if args.half:
            loss = loss - 150 * self.halves.sum()
        return {"loss": loss}


def optimizer_of(model: nn.Module) -> optim.Optimizer:
    """Return one whose step adds what `forward` says, and which has momenta of the network."""
    learns = [each for name, each in model.named_parameters() if "network" in name]
    counts = [each for name, each in model.named_parameters() if "network" not in name]
    groups = [{"params": counts, "lr": 1.0}, {"params": learns, "lr": 0.1, "momentum": 0.9}]
    return optim.SGD(groups, foreach=False)


def scheduler_of(optimizer: optim.Optimizer) -> LambdaLR:
    """Return one that slows the network down."""
    return LambdaLR(optimizer, [lambda _: 1.0, lambda step: 0.99**step])


def state_of(model: nn.Module) -> dict[str, list[float]]:
    """Return the numbers of a model; with a divided one all workers call it."""
    found = {name.rpartition(".")[2]: run.leaves(each) for name, each in model.state_dict().items()}
    counts = [each * args.batch for each in found["seen"][: args.records]]
    return {**found, "seen": counts, "model": run.leaves(model.state_dict())}
