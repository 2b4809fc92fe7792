"""The classification that scripts learn: its records and labels, and a linear model at its start."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

WIDTH, CLASSES = 8, 3


def problem(size: int) -> tuple[Tensor, Tensor]:
    """Return inputs and labels of so many records."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(size, WIDTH, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, CLASSES, (size,), generator=generator)


def start(*modules: nn.Module) -> None:
    """Give the parameters their first values."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                values = torch.linspace(-1, 1, parameter.numel(), dtype=torch.float64)
                parameter.copy_(values.view_as(parameter))


def model(device: torch.device | None = None) -> nn.Linear:
    """Return the model at its start."""
    layer = nn.Linear(WIDTH, CLASSES, dtype=torch.float64, device=device)
    start(layer)
    return layer


class Numbered(Dataset[tuple[Tensor, Tensor, int]]):
    """Records that know their number."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        return self.x[index], self.y[index], index
