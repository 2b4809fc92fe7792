"""A model's buffers in a step of several micro-batches: running statistics as if there were one.

A worker computes more micro-batches in a step if there are fewer workers. Each begins with the buffers of
the step's start, and those that the first one leaves stay: so BatchNorm's statistics do not depend on the
number of workers. The first micro-batch of a step is the main worker's, whose buffers all get.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Buffers:
    """The buffers of one step: `before` are copies of those at its start."""

    def __init__(self, buffers: Sequence[Tensor], before: Sequence[Tensor]) -> None:
        self._mine, self._before = buffers, before
        self._first: list[Tensor] = []

    def after(self, *, first: bool, last: bool) -> None:
        """After a micro-batch: keep those of the first, and prepare them for the next."""
        if first and not last:
            self._first = [each.detach().clone() for each in self._mine]
        if not first or not last:
            copy_to(self._mine, self._first if last else self._before)


def copy_to(buffers: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Overwrite buffers."""
    with torch.no_grad():
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value)
