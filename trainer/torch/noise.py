"""The gradient's noise scale: the batch, in records, beyond which a larger one makes a step little better.

Source: McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), appendix A.1. The mean
gradient g_p of a micro-batch of c_p records, and that of all B records of a step, have the expected squares

    Σ (c_p/B)·|g_p|² = |G|² + S·P/B        |g|² = |G|² + S/B        for P micro-batches

with the true gradient G and the sum S of the variances of a record's gradient. The noise scale is S/|G|².
Both are averaged over steps before they are divided. It takes two micro-batches in a step at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from elasticjob.trainer import checks

KEEPS: Final = 0.95
"""What a measurement leaves of those before it: the last twenty count."""
METRIC: Final = "gradient_noise_scale"


@dataclass(frozen=True)
class Measurement:
    """A step whose micro-batches' squares are this worker's only, and the square of its gradient."""

    round: int
    pieces: int
    records: int
    mine: float
    whole: float


class Noise:
    """Measures in each step whose number `every` divides; 0 is never."""

    def __init__(self, every: int) -> None:
        self._every = checks.whole("noise_every", every, "a whole number of steps, or 0 for never", least=0)
        self._hooks: list[RemovableHandle] = []
        self._sum: Tensor | None = None
        self._weight = 0.0
        self._new: Measurement | None = None
        self._waits: Measurement | None = None
        self._square = self._variance = 0.0

    @property
    def scale(self) -> float | None:
        """The noise scale in records; None while it is not known."""
        return self._variance / self._square if self._square > 0 and self._variance > 0 else None

    @property
    def measures(self) -> bool:
        """Whether the present step is measured."""
        return bool(self._hooks)

    def begin(self, number: int, pieces: int, parameters: Sequence[Tensor]) -> None:
        """Begin a step of so many micro-batches."""
        self._new = None
        if self._every and number % self._every == 0 and pieces > 1:
            self._sum = torch.zeros((), device=parameters[0].device)
            self._hooks = [
                each.register_hook(self._add)  # type: ignore[no-untyped-call]
                for each in parameters
                if each.requires_grad
            ]

    def weigh(self, share: float, factor: float) -> None:
        """Say that the next gradients are those of a `share` of the records, times `factor`."""
        self._weight = share / factor**2 if factor else 0.0

    def finish(self, round_: int, pieces: int, records: int, parameters: Sequence[Tensor]) -> None:
        """Note the gradient of the whole step, before it is clipped."""
        assert self._sum is not None
        squares = [square(each.grad) for each in parameters if each.grad is not None]
        whole = float(torch.stack(squares).sum()) if squares else 0.0
        self._new = Measurement(round_, pieces, records, float(self._sum), whole)
        self.end()

    def end(self) -> None:
        """End a step, however it ended."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._sum = [], None

    def mine(self, round_: int) -> float:
        """Return what this worker adds to the sum of the squares of the last step that was measured."""
        if self._waits is not None and self._waits.round != round_:
            self._waits = None  # some of its workers are gone
        return self._waits.mine if self._waits else 0.0

    def learn(self, sum_: float) -> None:
        """Take the sum over all workers of what they sent with this step, which is of an earlier one."""
        measured, self._waits, self._new = self._waits, self._new, None
        if measured is None or not torch.isfinite(torch.tensor((sum_, measured.whole))).all():
            return
        spread = (sum_ - measured.whole) / (measured.pieces - 1)
        self._variance = KEEPS * self._variance + (1 - KEEPS) * measured.records * spread
        self._square = KEEPS * self._square + (1 - KEEPS) * (measured.whole - spread)

    def _add(self, gradient: Tensor) -> None:
        assert self._sum is not None
        self._sum += self._weight * square(gradient)


def square(gradient: Tensor) -> Tensor:
    """Return the sum of the squares of a gradient."""
    values = gradient.detach()
    values = values.coalesce().values() if values.is_sparse else values
    return values.float().pow(2).sum()
