"""The loop of a script, for tests of one worker in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def steps(elastic: Any, data: Any, loss_of: Callable[[Any], Tensor], **limits: int) -> Iterator[Any]:
    """Take steps; each comes when it is over."""
    for step in elastic.steps(data, **limits):
        with step:
            for batch in step:
                step.backward(loss_of(batch))
        yield step


def trained(elastic: Any, data: Any, loss_of: Callable[[Any], Tensor], **limits: int) -> list[Any]:
    """Take all steps; return them."""
    return list(steps(elastic, data, loss_of, **limits))
