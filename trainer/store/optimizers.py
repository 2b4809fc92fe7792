"""Optimizers of rows, on the server: values, state and gradients are matrices with a row for each id.

The formulas are those of torch.optim with its defaults, each row by itself: a row that gets no gradient does
not change, and Adam counts the steps of each row (as torch.optim.SparseAdam does for all rows together).
"""

from __future__ import annotations

from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]


class Optimizer(Protocol):
    """Changes rows by their gradients."""

    @property
    def columns(self) -> int:
        """How many columns of state there are for each column of values."""

    @property
    def numbers(self) -> int:
        """How many numbers of state a row has beside those."""

    def fresh(self, state: Rows) -> None:
        """Set the state of rows that are new."""

    def apply(self, values: Rows, state: Rows, gradients: Rows) -> None:
        """Change `values` and `state`, [rows, dim] and [rows, columns · dim + numbers], in place."""


class SGD(msgspec.Struct, frozen=True, tag=True):
    """Subtract the gradients, `rate` times."""

    rate: float = 0.01

    columns = 0
    numbers = 0

    def fresh(self, state: Rows) -> None: ...

    def apply(self, values: Rows, state: Rows, gradients: Rows) -> None:
        values -= self.rate * gradients


class Adagrad(msgspec.Struct, frozen=True, tag=True):
    """Divide by the root of the sum of squares (Duchi et al. 2011)."""

    rate: float = 0.01
    initial: float = 0.0
    epsilon: float = 1e-10

    columns = 1
    numbers = 0

    def fresh(self, state: Rows) -> None:
        state[:] = self.initial

    def apply(self, values: Rows, state: Rows, gradients: Rows) -> None:
        state += gradients * gradients
        values -= self.rate * gradients / (np.sqrt(state) + self.epsilon)


class Adam(msgspec.Struct, frozen=True, tag=True):
    """Moments with bias correction by the steps of each row (Kingma and Ba 2015)."""

    rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    columns = 2
    numbers = 1  # the steps of the row

    def fresh(self, state: Rows) -> None:
        state[:] = 0.0

    def apply(self, values: Rows, state: Rows, gradients: Rows) -> None:
        dim = values.shape[1]
        first, second, steps = state[:, :dim], state[:, dim : 2 * dim], state[:, 2 * dim :]
        steps += 1.0
        first += (1.0 - self.beta1) * (gradients - first)
        second += (1.0 - self.beta2) * (gradients * gradients - second)
        whole = second / (1.0 - self.beta2**steps)
        values -= self.rate * (first / (1.0 - self.beta1**steps)) / (np.sqrt(whole) + self.epsilon)
