"""Optimizers of rows, on the server: values, state and gradients are matrices with a row for each id.

The formulas are those of torch.optim with its defaults, each row by itself: a row that gets no gradient does
not change, and Adam counts the steps of each row (as torch.optim.SparseAdam does for all rows together).
They are computed in float64; what is kept of them is float32.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from elasticjob.trainer.checks import check, is_number

Rows = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]

MOST: Final = 1e37
"""The largest number that a row may begin with: float32 has room for it, and for some times as much."""


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

    def apply(self, values: Numbers, state: Numbers, gradients: Numbers) -> None:
        """Change `values` and `state`, [rows, dim] and [rows, columns · dim + numbers], in place."""


class SGD(msgspec.Struct, frozen=True, tag=True):
    """Subtract the gradients, `rate` times."""

    rate: float = 0.01

    columns = 0
    numbers = 0

    def __post_init__(self) -> None:
        check(self, "rate", is_number(self.rate) and self.rate >= 0, "a number of at least 0")

    def fresh(self, state: Rows) -> None: ...

    def apply(self, values: Numbers, state: Numbers, gradients: Numbers) -> None:
        values -= self.rate * gradients


class Adagrad(msgspec.Struct, frozen=True, tag=True):
    """Divide by the root of the sum of squares (Duchi et al. 2011)."""

    rate: float = 0.01
    initial: float = 0.0
    epsilon: float = 1e-10

    columns = 1
    numbers = 0

    def __post_init__(self) -> None:
        check(self, "rate", is_number(self.rate) and self.rate >= 0, "a number of at least 0")
        check(
            self,
            "initial",
            is_number(self.initial) and 0 <= self.initial <= MOST,
            f"a number of 0 to {MOST:g}",
        )
        check(self, "epsilon", is_number(self.epsilon) and self.epsilon >= 0, "a number of at least 0")

    def fresh(self, state: Rows) -> None:
        state[:] = self.initial

    def apply(self, values: Numbers, state: Numbers, gradients: Numbers) -> None:
        state += gradients * gradients
        step = np.sqrt(state)
        step += self.epsilon
        values -= np.divide(self.rate * gradients, step, out=step)  # in place: half the time goes to memory


class Adam(msgspec.Struct, frozen=True, tag=True):
    """Moments with bias correction by the steps of each row (Kingma and Ba 2015)."""

    rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    columns = 2
    numbers = 1  # the steps of the row

    def __post_init__(self) -> None:
        check(self, "rate", is_number(self.rate) and self.rate >= 0, "a number of at least 0")
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            check(self, name, is_number(beta) and 0 <= beta < 1, "a number of at least 0, below 1")
        check(self, "epsilon", is_number(self.epsilon) and self.epsilon >= 0, "a number of at least 0")

    def fresh(self, state: Rows) -> None:
        state[:] = 0.0

    def apply(self, values: Numbers, state: Numbers, gradients: Numbers) -> None:
        dim = values.shape[1]
        first, second, steps = state[:, :dim], state[:, dim : 2 * dim], state[:, 2 * dim :]
        steps += 1.0
        first += (1.0 - self.beta1) * (gradients - first)
        second += (1.0 - self.beta2) * (gradients * gradients - second)
        whole = second / (1.0 - self.beta2**steps)
        values -= self.rate * (first / (1.0 - self.beta1**steps)) / (np.sqrt(whole) + self.epsilon)


def as_float32(numbers: Numbers) -> Rows:
    """Return numbers as float32. Raises OverflowError if it has not all of them."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = numbers.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise OverflowError("numbers are beyond those of float32")
    return narrow
