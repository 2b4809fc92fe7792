"""The trainings of the benchmark scripts: model, records, loss and step, the same for every system.

Each step is told. With $BENCH_TURNS, a folder, several jobs take turns on this machine: a worker that has
done $BENCH_BLOCK steps waits until there is a file with the number of the next turn. Rank 0 tells the median
of each turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lab.scripts.told import say

RECORDS: Final = 2048
BATCH: Final = 16
"""Records per worker and step, of two workers."""
SAVE_EVERY: Final = 20  # steps
LETTERS, LENGTH, WIDTH = 64, 64, 128
LOOK: Final = 0.02  # seconds between two looks for the file of a turn
SKIPPED: Final = 5  # first steps of a turn that do not count


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


class Steps:
    """Tells of the counted steps of this worker."""

    def __init__(self) -> None:
        turns = os.environ.get("BENCH_TURNS")
        self._turns = Path(turns) if turns else None
        self._block = int(os.environ.get("BENCH_BLOCK", "100"))
        self._turn = 0
        self._times: list[float] = []
        self._last = time.perf_counter()

    def done(self, step: int, rank: int, world: int, life: object) -> None:
        """A step has been counted in a world of so many workers; `life` names that world, or this process."""
        if self._turns is None:
            say(at=time.time(), step=step, rank=rank, world=world, life=life)
            return
        now = time.perf_counter()
        self._times.append(now - self._last)
        if len(self._times) == self._block:
            if rank == 0:
                say(turn=self._turn, median=median(self._times[SKIPPED:]), world=world)
            self._turn += 1
            self._times.clear()
            while not (self._turns / str(self._turn)).exists():
                time.sleep(LOOK)
        self._last = time.perf_counter()


WORKS: Final = {"net": net, "tiny": tiny, "mlp": mlp, "transformer": transformer, "large": large}


class Training:
    """The training that the benchmark wants, the same on every worker, with its state."""

    def __init__(self, name: str = os.environ.get("BENCH_WORK", "net")) -> None:
        torch.manual_seed(0)
        self.work, self.told, self.step = WORKS[name](), Steps(), 0
        self.model, self.records = self.work.model, self.work.records
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        self.optimizer: optim.Optimizer = optim.AdamW(parameters)

    def state(self) -> dict[str, Any]:
        """Return all that a start from here needs."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }

    def take(self, saved: Mapping[str, Any]) -> None:
        """Go on from a state; an empty one is the beginning."""
        self.step = saved.get("step", 0)
        if saved:
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])

    def load(self, path: str) -> None:
        """Go on from what was saved at a path, if that is something."""
        self.take(torch.load(path, weights_only=True) if path and os.path.exists(path) else {})

    def save(self, path: str) -> None:
        """Save the state as a whole."""
        torch.save(self.state(), path + ".tmp")
        os.replace(path + ".tmp", path)

    def steps(self, model: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> Iterator[int]:
        """Train `model`, which wraps ours, for ever; yield the number of each step after it."""
        for epoch in count():
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(epoch)
            for inputs, labels in loader:
                self.learn(model, inputs, labels)
                self.step += 1
                yield self.step

    def learn(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
        """Make a step."""
        self.optimizer.zero_grad()
        torch.autograd.backward(self.work.loss(model(inputs), labels))
        self.optimizer.step()
