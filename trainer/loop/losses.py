"""Losses that are not as they should be: noticed for the job's status, and what to do about them.

A spike is a loss far outside of the usual: above the running mean by ten running deviations, and twice it.
Near zero none is: of a model that has converged, each hard record stands far above the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FEW: Final = 20  # steps from which on there is a usual loss
DEVIATIONS: Final = 10.0
TIMES: Final = 2.0
DECAY: Final = 0.05  # weight of the newest loss in the running mean
NEAR_ZERO: Final = 0.1
CALM: Final = 100  # steps until the same is told again


@dataclass
class Losses:
    """The running mean and variance of the losses, by exponential weights."""

    mean: float = 0.0
    variance: float = 0.0
    seen: int = 0
    last: tuple[int, float] = (0, 0.0)
    told: int = -CALM  # the step of the last alarm

    def alarm(self, step: int, loss: float) -> str:
        """Take in the loss of a step; return in a sentence what is wrong with it, empty if nothing is."""
        if not math.isfinite(loss):
            return self._once(step, f"the loss of step {step} is {loss}{self._before()}")
        usual, deviation = self.mean, math.sqrt(self.variance)
        most = usual + max(DEVIATIONS * deviation, (TIMES - 1) * abs(usual))
        spike = self.seen >= FEW and loss > max(most, NEAR_ZERO)
        self._take(step, loss)
        if not spike:
            return ""
        return self._once(step, f"the loss of step {step} is {loss:.4g}, after {usual:.4g} on average")

    def _take(self, step: int, loss: float) -> None:
        weight = max(DECAY, 1 / (self.seen + 1))
        distance = loss - self.mean
        self.mean += weight * distance
        self.variance = (1 - weight) * (self.variance + weight * distance**2)
        self.seen, self.last = self.seen + 1, (step, loss)

    def _before(self) -> str:
        step, loss = self.last
        return f"; the last finite one was {loss:.4g} at step {step}" if step else ""

    def _once(self, step: int, sentence: str) -> str:
        if step - self.told < CALM:
            return ""
        self.told = step
        return sentence


@dataclass(frozen=True)
class Remedy:
    """A step whose loss or gradients are not finite is left out, `most` times at most."""

    rolls_back: bool
    most: int

    @classmethod
    def of(cls, name: str | None, most: int) -> Remedy | None:
        """Return the remedy of that name, None without one. ValueError for an unknown one."""
        if name is None:
            return None
        if name not in ("skip", "rollback"):
            raise ValueError(f'on_nan is {name!r}: give "skip", "rollback" or None')
        if most < 1:
            raise ValueError(f"nan_limit is {most}: give 1 or more")
        return cls(name == "rollback", most)

    def check(self, step: int, left_out: int) -> None:
        """Raise RuntimeError if that many steps, with this one, are too many."""
        if left_out > self.most:
            raise RuntimeError(
                f"the loss or the gradients of step {step} are not finite, and {self.most} steps were left "
                "out before (nan_limit): look at the learning rate and at the records of these steps"
            )
