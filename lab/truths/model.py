"""The model is bit for bit the one of a training that nothing disturbs, or near it where sums differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol

from lab.story import Truth
from lab.truths.records import Line

NEAR: Final = 1e-8
"""Sums of as many workers as there happen to be."""
CLIP: Final = 0.5
"""The largest norm of a gradient."""


def distance(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the largest difference of two states: of their numbers; infinite if it is of anything else."""
    if len(one) != len(other):
        return math.inf
    pairs = ((a, b) for a, b in zip(one, other, strict=True) if a != b and not (a != a and b != b))
    numbers = (float, int)
    return max(
        (abs(a - b) if isinstance(a, numbers) and isinstance(b, numbers) else math.inf for a, b in pairs),
        default=0.0,
    )


class Trained(Protocol):
    """A training with the parameters at its end in `lines`, and how to train it in one process."""

    lines: list[Line]
    alone: Callable[[Line], list[float]]


def differs(lines: Sequence[Line], alone: Callable[[Line], list[float]]) -> list[str]:
    """Return what is wrong with the parameters that workers ended with."""
    ends = [line for line in lines if "parameters" in line]
    far = max((distance(line["parameters"], alone(line)) for line in ends), default=0.0)
    wrong = [] if ends else ["no worker ended with parameters"]
    return [*wrong, f"parameters differ by {far:g} from one process's"] if not far <= NEAR else wrong


def one_loss(lines: Sequence[Line]) -> list[str]:
    """Return a sentence for each step with several losses."""
    losses: dict[int, set[float]] = defaultdict(set)
    for line in lines:
        if "loss" in line:
            losses[line["step"]].add(round(line["loss"], 9))
    return [f"step {step} has several losses: {all_}" for step, all_ in losses.items() if len(all_) > 1]


@cache
def trained_alone(size: int, batch: int, epochs: int) -> tuple[list[float], list[float]]:
    """Return parameters and each gradient's norm of `counted.py` without any of our library's loop."""
    import torch
    import torch.nn.functional as F

    from elasticjob.trainer.torch.records.data import permutation
    from lab.scripts.shared import model_at_start, numbers, problem

    (x, y), model, norms = problem(size), model_at_start(), list[float]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for records in permutation(size, 0, epoch).split(batch):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(model(x[records]), y[records]))
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
            optimizer.step()
    return numbers(model), norms


@cache
def sharded_alone(steps: int) -> list[float]:
    """Return the parameters of `saved.py` after so many steps of one process."""
    import torch

    from lab.scripts.trainer.saved import loss_of, model_at_start

    model = model_at_start()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(model, step))
        optimizer.step()
    return [value for each in model.parameters() for value in each.flatten().tolist()]


TRUTHS: Final = (
    Truth("model", lambda scene: differs(scene.lines, scene.alone)),
    Truth("one-loss", lambda scene: one_loss(scene.lines)),
)
