"""The record of steps: standstills and the count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.cli.story.steps import Standstill, Step, gaps, lost, rate, smooth, standstills


def steps(*rows: tuple[float, int, int, int]) -> tuple[Step, ...]:
    return tuple(Step(at=at, round=round_, step=step, world=world) for at, round_, step, world in rows)


KILLED = steps((1.0, 1, 1, 2), (1.1, 1, 2, 2), (1.3, 2, 3, 1), (1.4, 2, 4, 1), (1.7, 3, 5, 2))


def test_standstill_lasts_from_the_last_step_before_to_the_first_after() -> None:
    assert standstills(KILLED) == (
        Standstill(round=2, began=1.1, ended=1.3, before=2, after=1),
        Standstill(round=3, began=1.4, ended=1.7, before=1, after=2),
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (KILLED, ()),
        ((), ()),
        (steps((1, 1, 1, 2), (2, 1, 3, 2)), ("round 1 counted step 3, expected 2",)),
        (steps((1, 1, 1, 2), (2, 1, 1, 2)), ("round 1 counted step 1, expected 2",)),
        (steps((1, 1, 1, 2), (2, 2, 3, 2)), ("round 2 counted step 3, expected 2",)),
        (steps((1, 1, 2, 2)), ("round 1 counted step 2, expected 1",)),
        (steps((1, 1, 1, 2), (2, 1, 2, 2), (3, 2, 2, 1), (4, 2, 3, 1)), ()),  # the last step was done again
    ],
)
def test_gaps_names_each_break_in_the_count(record: tuple[Step, ...], expected: tuple[str, ...]) -> None:
    assert gaps(record) == expected


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (KILLED, 0),
        (steps((1, 1, 1, 2), (2, 1, 2, 2), (3, 2, 2, 1), (4, 2, 3, 1)), 0),  # recorded by both main workers
        (steps((1, 1, 1, 2), (2, 1, 2, 2), (3, 2, 1, 1)), 2),
        (steps((1, 1, 1, 2), (2, 2, 3, 2)), 1),
    ],
)
def test_steps_that_are_lost_or_done_again_at_changes_of_the_round(
    record: tuple[Step, ...], expected: int
) -> None:
    assert lost(record) == expected


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.data())
def test_record_without_a_missing_step_has_no_gap_and_one_without_some_step_has(
    lengths: list[int], data: st.DataObject
) -> None:
    rounds = [round_ for round_, length in enumerate(lengths, 1) for _ in range(length)]
    record = [Step(at=float(n), round=round_, step=n, world=1) for n, round_ in enumerate(rounds, 1)]
    assert gaps(record) == ()
    if len(record) > 1:
        lost = data.draw(st.integers(0, len(record) - 2))
        assert len(gaps(record[:lost] + record[lost + 1 :])) == 1


def test_rate_counts_steps_in_each_window_and_shows_standstills() -> None:
    record = steps(*((n / 10, 1, n, 1) for n in range(10)), *((3 + n / 10, 2, 10 + n, 1) for n in range(10)))
    speeds = [round(speed) for _, speed in rate(record, 1.0)]
    assert speeds == [10, 0, 0, 11]


def test_smooth_skips_steps_without_a_loss() -> None:
    record = [Step(at=1, round=1, step=1, world=1, loss=2.0), Step(at=2, round=1, step=2, world=1)]
    record.append(Step(at=3, round=1, step=3, world=1, loss=1.0))
    assert list(smooth(record, 0.5)) == [(1, 2.0), (3, 1.5)]
