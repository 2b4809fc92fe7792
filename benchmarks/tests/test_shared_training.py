"""When a job counts as training again, and for how long it stood still."""

from __future__ import annotations

import pytest

from benchmarks.shared.training.scene import WELL, longest, trains_well
from elasticjob.cli.story.steps import Step


@pytest.mark.parametrize(
    ("first", "workers", "after", "well"),
    [
        (1, 3, 1, True),
        (1, None, 1, True),
        (1, 2, 1, False),  # of another size
        (1, 3, 2, False),  # of the round before
        (2, 3, 1, False),  # too few of the newest round
    ],
)
def test_a_job_trains_well_after_enough_steps_of_a_later_round(
    first: int, workers: int | None, after: int, well: bool
) -> None:
    steps = [Step(number / 10, 1 if number < first else 2, number, 3) for number in range(WELL + 1)]
    assert trains_well(steps, workers, after) is well


def test_the_longest_gap_is_between_two_steps_of_anybody() -> None:
    steps = [Step(at, 1, number, 3) for number, at in enumerate((0.0, 0.1, 2.0, 2.1))]
    assert longest(steps) == pytest.approx(1.9)
    assert longest(steps[:1]) == 0
