"""Series are bounded, keep their ends, and never take two points of one time."""

from __future__ import annotations

from math import isnan, nan

import pytest

from elasticjob.page.series import Point, Series, json_value


@pytest.mark.parametrize(
    ("taken", "kept"),
    [
        ([], []),
        ([1, 2, 3], [1, 2, 3]),
        ([1, 1, 2, 1.5], [1, 2]),
        ([*range(9)], [0, 2, 4, 6, 8]),  # of more than 8 every second one goes
        ([*range(12)], [0, 2, 4, 6, 8, 10]),  # and later ones come half as often
    ],
)
def test_a_series_is_thinned_when_it_is_full(taken: list[float], kept: list[float]) -> None:
    series = Series(most=8)
    for at in taken:
        series.add(Point(at))
    assert [point.at for point in series] == kept


def test_a_series_of_days_keeps_its_beginning_and_its_end() -> None:
    series = Series(most=100)
    for second in range(100_000):
        series.add(Point(float(second), 1.0, 1.0, 1.0, 1.0))
    found = [*series]
    assert 50 <= len(found) <= 100
    assert found[0].at < 2000
    assert found[-1].at > 98_000
    assert series.last(3) == found[-3:]


@pytest.mark.parametrize(("value", "shown"), [(1.5, 1.5), (0.0, 0.0), (nan, None)])
def test_what_is_not_known_is_no_number(value: float, shown: float | None) -> None:
    assert json_value(value) == shown
    assert isnan(Point(1.0).samples)
