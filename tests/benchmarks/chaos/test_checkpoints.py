"""What is wrong with a life in `make chaos-training`, and what `make bench-training` computes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.chaos.checkpoints import Blow, in_memory, problems, trained_alone
from benchmarks.training.sheet import goodput

ENDS = [{"parameters": trained_alone(3), "steps": 3, "at": 9.0} for _ in range(2)]


def begins(step: int, at: float, world: int = 2) -> dict[str, Any]:
    return {"begins": step, "at": at, "world": world, "rank": 0}


@pytest.mark.parametrize(
    ("blow", "life", "sentence"),
    [
        (Blow(1.0, "node", committed=4, in_memory=6), begins(4, 2.0), ""),
        (Blow(1.0, "node", committed=4, in_memory=6), begins(0, 2.0), "step 4 was committed"),
        (Blow(1.0, "worker", committed=4, in_memory=6), begins(4, 2.0), "step 6 was in memory"),
        (Blow(3.0, "worker", committed=4, in_memory=6), begins(0, 2.0), ""),
    ],
)
def test_lives_begin_no_earlier_than_what_was_saved(blow: Blow, life: dict[str, Any], sentence: str) -> None:
    assert [each[: len(sentence)] for each in problems([life, *ENDS], [blow])] == (
        [sentence] if sentence else []
    )


def test_two_losses_of_a_step_and_other_parameters_are_told() -> None:
    lines = [{"step": 1, "loss": loss, "at": loss} for loss in (1.0, 2.0)]
    wrong = {**ENDS[0], "steps": 2}
    found = problems([*lines, wrong], [])
    assert [sentence.partition(" ")[0] for sentence in found] == ["step", "1", "parameters"]


def test_the_copy_of_the_slowest_rank_counts() -> None:
    saved = [{"saved": step, "rank": rank, "at": 2.0} for step, rank in ((4, 0), (6, 0), (4, 1))]
    assert in_memory([begins(2, 1.5), *saved], since=1.0) == 4
    assert in_memory(saved, since=1.0) == 0


def test_goodput_at_rare_faults_is_what_saves_and_faults_leave() -> None:
    """A save of 2 s each 100 s (Young: sqrt(2 * 2 * 2500)); a fault each 2,500 s costs 25 + 50 s."""
    assert goodput(block=2.0, still=25.0, between=2500.0) == pytest.approx(1 - 0.02 - 75 / 2500)
