"""The pure parts of the stories whose goodput adds up: what happens, what was wanted, what is told."""

from __future__ import annotations

import pytest

from benchmarks.chaos.goodput import ACTS, HAPPENS, Outcome, Wanted, account_of, acts


def test_stories_repeat_by_their_seed_and_each_act_has_its_turn() -> None:
    assert [acts(7, number) for number in range(4)] == [acts(7, number) for number in range(4)]
    assert acts(7, 1)[1:] != acts(8, 1)[1:]
    assert {acts(3, number)[0] for number in range(len(HAPPENS))} == set(HAPPENS)
    assert len(acts(3, 0)) == ACTS


@pytest.mark.parametrize(
    ("changes", "until", "expected"),
    [
        ([(10.0, 2)], 15.0, 10.0),
        ([(10.0, 2), (12.0, 3), (14.0, 1)], 15.0, 4 + 6 + 1),
        ([(10.0, 2), (12.0, 0), (20.0, 2)], 21.0, 4 + 2),
    ],
)
def test_wanted_workers_are_counted_over_time(
    changes: list[tuple[float, int]], until: float, expected: float
) -> None:
    assert Wanted(changes).seconds(until) == expected


def test_an_outcome_is_as_far_off_as_its_account() -> None:
    account = account_of({"productiveSeconds": 90.0, "badputSeconds": {"init": 9.0, "data": 0.0}})
    assert account == {"productive": 90.0, "init": 9.0}
    assert Outcome(["worker killed"], 100.0, account).deviation == pytest.approx(-0.01)
