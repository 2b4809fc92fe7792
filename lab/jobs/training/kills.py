"""A training that is killed at each of its micro-batches, one after another, in one process."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


class Killed(BaseException):
    """The end of a worker."""


class Model(nn.Module):
    """Draws from all generators, and ends the worker in the midst of micro-batch `at`."""

    def __init__(self, at: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self._at, self._now = at, 0
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(7)

    def forward(self, inputs: torch.Tensor) -> Any:
        """Return the loss of a micro-batch."""
        outputs = self.layers(inputs)
        loss = (outputs - inputs.sum(1, keepdim=True)).square().mean()
        if not self.training:
            return loss
        self._now += 1
        if self._now == self._at:
            raise Killed
        return loss * (1 + random.random() + float(np.random.rand()))


def weights(model: nn.Module) -> str:
    """Return a text that is the same for the same bits."""
    tensors = model.state_dict().values()
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()


def main(train: Callable[[Path, int | None], dict[str, Any]], micro_batches: int) -> None:
    """Print the results of `train(folder, None)` without a kill, and after a kill at each micro-batch."""
    folder = Path(sys.argv[1])
    print(json.dumps(train(folder / "never", None)), flush=True)
    for kill in range(1, micro_batches + 1):
        try:
            train(folder / str(kill), kill)
        except Killed:
            print(json.dumps({"kill": kill} | train(folder / str(kill), None)), flush=True)
