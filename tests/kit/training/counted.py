"""The training of `tests/trainer/scripts/counted.py`, to be done again in one process."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

SIZE: Final = 101
BATCH: Final = 8


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor, torch.optim.AdamW]:
    """Return its records and labels, and the initial weight and bias with their optimizer."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SIZE, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (SIZE,), generator=generator)
    weight = torch.linspace(-1, 1, 24, dtype=torch.float64).view(3, 8).requires_grad_()
    bias = torch.linspace(-1, 1, 3, dtype=torch.float64).requires_grad_()
    return x, y, weight, bias, torch.optim.AdamW([weight, bias], lr=1e-2)
