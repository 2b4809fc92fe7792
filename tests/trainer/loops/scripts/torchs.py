"""The model and the records of the loops for torch."""

from __future__ import annotations

from typing import Any

import torch
from shared import args, is_other, say
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler

torch.set_num_threads(1)


class Numbers(Dataset[dict[str, Tensor]]):
    """Records that are their number."""

    def __len__(self) -> int:
        return int(args.records)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"index": torch.tensor(index)}


class Backwards(Sampler[int]):
    """The last record first."""

    def __len__(self) -> int:
        return int(args.records)

    def __iter__(self) -> Any:
        return reversed(range(args.records))


def order() -> dict[str, Any]:
    """Return the arguments of a DataLoader for the order of the records."""
    if args.sampler == "reversed":
        return {"sampler": Backwards()}
    return {"shuffle": args.sampler == "shuffle"}


class Counts(nn.Module):
    """Has a number for each record; `touched` counts passes, `other` depends on their order."""

    touched: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Parameter(torch.zeros(max(96, args.records) if not is_other() else 7))
        self.other = nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("touched", torch.zeros(1))
        if args.half:
            self.halves = nn.Parameter(torch.zeros(3, dtype=getattr(torch, args.half)))

    def forward(self, index: Tensor) -> dict[str, Tensor]:
        """Return the loss: its gradient is -1 for each record that is taken, of as many as a batch has."""
        self.touched += 1
        far = (self.other - index.float().mean() / 50).square().sum()
        loss = far / 50 - self.seen[index].mean()
        if args.half:
            loss = loss - 150 * self.halves.sum()
        return {"loss": loss}


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return one whose step adds what `forward` says."""
    return torch.optim.SGD(model.parameters(), lr=1.0, foreach=False)


def state_of(model: nn.Module) -> dict[str, list[float]]:
    """Return the numbers of a model; with a divided one all workers call it."""
    whole = {
        name: (each.full_tensor() if hasattr(each, "full_tensor") else each).detach().double()
        for name, each in model.state_dict().items()
    }
    whole["seen"] = whole["seen"][: args.records] * args.batch
    return {name.rpartition(".")[2]: each.tolist() for name, each in whole.items()}


def end(rank: int, model: nn.Module, **more: Any) -> None:
    """Say what the training came to."""
    say(end=state_of(model), rank=rank, **more)
