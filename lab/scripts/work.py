"""The trainings of the benchmark scripts: model, records and loss of each, the same for every system."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

RECORDS: Final = 2048
BATCH: Final = 16
"""Records per worker and step, of two workers."""
LETTERS, LENGTH, WIDTH = 64, 64, 128


@dataclass(frozen=True)
class Work:
    """A training: the loss is a mean over `model(inputs)` and the labels."""

    model: nn.Module
    records: TensorDataset
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy


class Letters(nn.Module):
    """A small transformer that predicts the next letter at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: Tensor) -> Tensor:
        """Return logits of shape (batch, letters, places)."""
        hidden = self.layers(self.letters(text) + self.places, mask=self.mask, is_causal=True)
        logits: Tensor = self.head(hidden).transpose(1, 2)
        return logits


def net() -> Work:
    """Return a small convolutional network on images of 8 x 8 pixels."""
    layers = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    head = (nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))
    return Work(nn.Sequential(*layers, *head), labelled(1, 8, 8))


def tiny() -> Work:
    """Return a model that costs almost nothing."""
    return Work(nn.Linear(64, 10), labelled(64))


def mlp() -> Work:
    """Return a model of 0.4 million parameters: about 10 ms a step on one core each."""
    layers = (nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return Work(nn.Sequential(*layers), labelled(256))


def transformer() -> Work:
    """Return a transformer of 0.4 million parameters on texts of 64 letters."""
    text = torch.randint(0, LETTERS, (RECORDS, LENGTH + 1))
    return Work(Letters(), TensorDataset(text[:, :-1], text[:, 1:]))


class Large(nn.Module):
    """A small network beside 400 MB of parameters that are not trained: much to keep, little to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(100_000_000), requires_grad=False)
        self.head = nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits of shape (batch, classes)."""
        logits: Tensor = self.head(inputs)
        return logits


def large() -> Work:
    """Return a model of 400 MB that costs almost nothing."""
    return Work(Large(), labelled(64))


def labelled(*shape: int) -> TensorDataset:
    """Return records of this shape with labels."""
    return TensorDataset(torch.randn(RECORDS, *shape), torch.randint(0, 10, (RECORDS,)))


WORKS: Final = {"net": net, "tiny": tiny, "mlp": mlp, "transformer": transformer, "large": large}


def chosen() -> Work:
    """Return the training that the benchmark wants, the same on every worker."""
    torch.manual_seed(0)
    return WORKS[os.environ.get("BENCH_WORK", "net")]()
