"""The model of both benchmark scripts: a small convolutional network on images of 8 x 8 random pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset


def net() -> nn.Module:
    """Return the model, the same on every worker."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def dataset() -> TensorDataset:
    """Return 2,048 records."""
    generator = torch.Generator().manual_seed(0)
    images: Tensor = torch.randn(2048, 1, 8, 8, generator=generator)
    return TensorDataset(images, torch.randint(0, 10, (2048,), generator=generator))
