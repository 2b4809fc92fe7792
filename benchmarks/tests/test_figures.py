"""Quantiles, growth and cells of the benchmarks' tables."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures import growth, number, quantile, spread


@pytest.mark.parametrize(
    ("samples", "share", "found"),
    [([3.0], 0.5, 3.0), ([4, 1, 3, 2], 0.5, 2), (range(1, 101), 0.99, 99), ([1, 9], 1.0, 9)],
)
def test_quantiles(samples: list[float], share: float, found: float) -> None:
    assert quantile(samples, share) == found


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_the_smallest_sample_that_enough_are_no_larger_than(
    samples: list[float], share: float
) -> None:
    found = quantile(samples, share)
    assert sum(sample <= found for sample in samples) >= share * len(samples) - 1e-9
    assert sum(sample < found for sample in samples) < share * len(samples)


@given(st.floats(-1, 3), st.floats(0.001, 1e3))
def test_growth_is_the_exponent(power: float, factor: float) -> None:
    sizes = [100.0, 300.0, 1000.0]
    assert growth(sizes, [factor * size**power for size in sizes]) == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize(("sizes", "costs"), [([5, 5], [1, 2]), ([1], [1]), ([1, 2], [0, 1]), ([1, 2], [1])])
def test_what_has_no_growth_and_no_quantile_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="no growth"):
        growth(sizes, costs)
    with pytest.raises(ValueError, match="no samples"):
        quantile([], 0.5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.0123, "0.012"), (1.234, "1.23"), (-3.21, "-3.21"), (23456.0, "23,500"), (999.9, "1,000")],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("samples", "shown"),
    [
        ([], "–"),
        ([3, 1, 2], "2.00 (1.00–3.00)"),
        ([1, inf], "not in time"),
        ([nan], "–"),
        ([nan, 2.0], "2.00"),
        ([inf, nan], "not in time"),
    ],
)
def test_a_cell_is_a_median_with_its_spread_whatever_came(samples: list[float], shown: str) -> None:
    assert spread(samples) == shown
