"""Random numbers: streams by seed for what models and datasets draw; the script's own stay its own."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor


def seed_all(seed: int) -> None:
    """Seed torch, random and, if it is imported, NumPy: what is read does not depend on who reads it."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFF_FFFF)


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed the random numbers of models on `device`.

    torch.manual_seed seeds all kinds of devices, at 0.2 ms for those that were never used; torch.cuda's seeds
    the present GPU, which may be another one.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)


@contextmanager
def keep_random_state() -> Iterator[None]:
    """Give the script its random numbers back after a block that seeds them."""
    torchs, pythons = torch.get_rng_state(), random.getstate()
    try:
        with _numpys_own():
            yield
    finally:
        torch.set_rng_state(torchs)
        random.setstate(pythons)


@contextmanager
def _numpys_own() -> Iterator[None]:
    """Let NumPy draw from another generator; to copy the state of its own would take 85 microseconds.

    One normal number that it has drawn ahead is forgotten.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy.random, "set_bit_generator"):  # before NumPy 1.24
        yield
        return
    own = numpy.random.get_bit_generator()
    numpy.random.set_bit_generator(_for_reading(numpy.random))
    try:
        yield
    finally:
        numpy.random.set_bit_generator(own)


@cache
def _for_reading(numpys: Any) -> Any:
    """Return the generator of what is read: to make one takes longer than to seed it."""
    return numpys.MT19937(0)


@dataclass(frozen=True)
class Randomness:
    """The state of torch's random numbers on the CPU, and on a GPU."""

    cpu: Tensor
    gpu: Tensor | None
    device: torch.device

    @classmethod
    def of(cls, device: torch.device) -> Self:
        """Return the present state."""
        gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        return cls(torch.get_rng_state(), gpu, device)

    def put_back(self) -> None:
        """Go on from this state."""
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)
