"""The file of counted steps has no gap, though the worker that writes it may die before it could."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.record import Record


@pytest.mark.parametrize(
    ("taken", "recorded"),
    [
        ((1, 2, 3), [1, 2, 3]),
        ((1, 3, 4), [1, 2, 3, 4]),  # the broadcast of another worker brought the second
        ((6, 7), [5, 6, 7]),  # this worker became the main one
        ((6, 3, 4), [5, 6, 3, 4]),  # from a checkpoint
    ],
)
def test_step_that_only_a_lost_worker_counted_is_recorded_by_its_successor(
    tmp_path: Path, taken: tuple[int, ...], recorded: list[int]
) -> None:
    with (tmp_path / "steps").open("ab", buffering=0) as file:
        record = Record(file, clock=lambda: 1.0)
        for step in taken:
            record.add(2, 1, Done(step=step - 1), Done(step=step, loss=0.5))
    counted = [json.loads(line) for line in (tmp_path / "steps").read_text().splitlines()]
    assert [step["step"] for step in counted] == recorded
