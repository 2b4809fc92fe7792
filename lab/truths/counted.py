"""The training of `lab/scripts/trainer/counted.py`: what its workers must come to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from elasticjob.trainer.records.sampler import Position, Sampler
from lab.jobs.training.harness import Scenario, counted
from lab.truths.model import trained_alone
from lab.truths.records import Line, life_of, lineage, missing, records

SIZE: Final = 101
BATCH: Final = 8


def check(job: Scenario, *, slots: int, epochs: int = 0) -> None:
    """The count has no gap, each record counted once per epoch, and the model is the one of a single process.

    A training that was held had as many epochs as it says.
    """
    epochs = epochs or job.epochs
    parameters, norms = trained_alone(SIZE, BATCH, epochs)
    lines = job.recorded()
    newest = lineage(lines)
    assert not [*missing(lines, len(norms)), *records(lines, {SIZE})]
    assert len(newest) == len(norms)
    taken = Counter(records_once(lines, slots))
    assert {epoch for epoch, _ in taken} == {*range(epochs)}
    assert set(taken.values()) == {1}, "a record was used twice, also by two workers in one step"
    steps = [line for line in lines if "done" in line]
    steps = [line for line in steps if newest[line["done"]] == (life_of(line), line["round"])]
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


def records_once(lines: Sequence[Line], slots: int) -> Iterator[tuple[int, int]]:
    """Yield the epoch and number of each record that counts, of the attempts that did their steps.

    The last ones of an attempt may have been read to keep another company.
    """
    newest, sampler = lineage(lines), Sampler(SIZE, BATCH, slots)
    attempts: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for line in lines:
        if "records" in line and newest.get(line["step"]) == (life_of(line), line["round"]):
            attempts[line["epoch"], line["step"], line["rank"], line["world"]] += line["records"]
    for (epoch, step, rank, world), taken in attempts.items():
        offset = (step - 1) % sampler.steps_left(Position(), 1) * BATCH
        pieces = sampler.window(Position(epoch, offset)).of(rank, world)
        yield from ((epoch, record) for record in taken[: sum(piece.count for piece in pieces)])
