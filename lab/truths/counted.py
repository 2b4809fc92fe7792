"""The training of `lab/scripts/trainer/counted.py`: what its workers must come to."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

import pytest

from elasticjob.trainer.records.sampler import Position, Sampler
from lab.jobs.training.harness import Scenario, counted
from lab.truths.model import trained_alone
from lab.truths.records import Line, life_of, lineage, missing, records

SIZE: Final = 101
BATCH: Final = 8
CLIP: Final = 0.5


def check(job: Scenario, *, slots: int, epochs: int = 0, lost: int = 0) -> None:
    """The count has no gap, each record counted once per epoch, and the model is the one of a single process.

    Of killed workers the last line may be missing: `lost` is how many lines at most. A training that was held
    had as many epochs as it says.
    """
    epochs = epochs or job.epochs
    parameters, norms = trained_alone(SIZE, BATCH, epochs, CLIP)
    lines = job.recorded()
    newest = lineage(lines)
    assert not [*missing(lines, len(norms)), *records(lines, {SIZE}, lost * BATCH)]
    assert len(newest) == len(norms)
    steps = [line for line in lines if newest[line["step"]] == (life_of(line), line["round"])]
    assert {step["epoch"] for step in steps} == {*range(epochs)}
    taken = Counter((step["epoch"], record) for step in steps for record in records_of(step, slots))
    assert set(taken.values()) == {1}, "a record was used twice, also by two workers in one step"
    assert len(set(counted(steps))) == len(counted(steps)), "rank 0 counted a step twice"
    for pid in job.seen:
        own = [step["step"] for step in steps if step["pid"] == pid]
        assert own == sorted(own), f"process {pid} counted backwards"
    for step in steps:
        assert step["norm"] == pytest.approx(norms[step["step"] - 1], abs=1e-6)
    results = job.results()
    assert results
    assert len({result["score"] for result in results}) == 1
    assert all(math.isfinite(result["score"]) for result in results)
    for result in results:
        assert result["parameters"] == pytest.approx(parameters, abs=1e-6)


def records_of(step: Line, slots: int) -> list[int]:
    """Return the records of a step that count; the last ones may have been read to keep another company."""
    sampler = Sampler(SIZE, BATCH, slots)
    offset = (step["step"] - 1) % sampler.steps_left(Position(), 1) * BATCH
    pieces = sampler.window(Position(step["epoch"], offset)).of(step["rank"], step["world"])
    records: list[int] = step["records"][: sum(piece.count for piece in pieces)]
    return records
