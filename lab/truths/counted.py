"""The training of `lab/scripts/trainer/counted.py` again, in one process: what its workers must come to."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from elasticjob.trainer.records.sampler import Position, Sampler
from elasticjob.trainer.torch.records.data import permutation
from lab.jobs.training.harness import Scenario, counted

SIZE: Final = 101
BATCH: Final = 8
CLIP: Final = 0.5


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor, torch.optim.AdamW]:
    """Return its records and labels, and the initial weight and bias with their optimizer."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SIZE, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (SIZE,), generator=generator)
    weight = torch.linspace(-1, 1, 24, dtype=torch.float64).view(3, 8).requires_grad_()
    bias = torch.linspace(-1, 1, 3, dtype=torch.float64).requires_grad_()
    return x, y, weight, bias, torch.optim.AdamW([weight, bias], lr=1e-2)


def trained_alone(epochs: int) -> tuple[list[float], list[float]]:
    """Return the parameters and the norm of each step's gradient, without any of our library's loop."""
    x, y, weight, bias, optimizer = problem()
    sampler, position, norms = Sampler(SIZE, BATCH, 1), Position(), list[float]()
    while position.epoch < epochs:
        order = permutation(SIZE, 0, position.epoch)
        window = order[sampler.window(position).places.start : sampler.window(position).places.stop]
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(F.linear(x[window], weight, bias), y[window]))
        norms.append(float(torch.nn.utils.clip_grad_norm_([weight, bias], CLIP)))
        optimizer.step()
        position = sampler.following(sampler.window(position))
    return [*weight.flatten().tolist(), *bias.tolist()], norms


def check(job: Scenario, *, slots: int, epochs: int = 0, lost: int = 0) -> None:
    """The count has no gap, each record counted once per epoch, and the model is the one of a single process.

    Of killed workers the last line may be missing: `lost` is how many lines at most. A training that was held
    had as many epochs as it says.
    """
    epochs = epochs or job.epochs
    parameters, norms = trained_alone(epochs)
    steps = lineage(job.recorded())
    assert sorted({step["step"] for step in steps}) == list(range(1, len(norms) + 1))
    assert len(set(counted(steps))) == len(counted(steps)), "rank 0 counted a step twice"
    for pid in job.seen:
        own = [step["step"] for step in steps if step["pid"] == pid]
        assert own == sorted(own), f"process {pid} counted backwards"
    missing = epochs * SIZE
    for epoch in range(epochs):
        taken = [records_of(step, slots) for step in steps if step["epoch"] == epoch]
        records = Counter(record for each in taken for record in each)
        assert not [record for record, times in records.items() if times > 1], f"epoch {epoch}"
        assert set(records) <= set(range(SIZE))
        missing -= len(records)
    assert 0 <= missing <= lost * BATCH
    for step in steps:
        assert step["norm"] == pytest.approx(norms[step["step"] - 1], abs=1e-6)
    results = job.results()
    assert results
    assert len({result["score"] for result in results}) == 1
    assert all(math.isfinite(result["score"]) for result in results)
    for result in results:
        assert result["parameters"] == pytest.approx(parameters, abs=1e-6)


def records_of(step: dict[str, Any], slots: int) -> list[int]:
    """Return the records of a step that count; the last ones may have been read to keep another company."""
    sampler = Sampler(SIZE, BATCH, slots)
    offset = (step["step"] - 1) % sampler.steps_left(Position(), 1) * BATCH
    pieces = sampler.window(Position(step["epoch"], offset)).of(step["rank"], step["world"])
    records: list[int] = step["records"][: sum(piece.count for piece in pieces)]
    return records


def lineage(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps that shaped the model: a lost worker may count one more, which the others repeat."""
    newest = {step["step"]: 0 for step in steps}
    for step in steps:
        newest[step["step"]] = max(newest[step["step"]], step["round"])
    return [step for step in steps if step["round"] == newest[step["step"]]]
