"""Quantiles, growth and cells of the benchmarks' tables."""

from __future__ import annotations

import io
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.figures import Sheet, growth, number, quantile, show, spread

SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=1)


@pytest.mark.parametrize(
    ("samples", "share", "found"),
    [
        ([3.0], 0.5, 3.0),
        ([4, 1, 3, 2], 0.5, 2),
        ([1, 2, 3], 0.5, 2),
        (range(1, 101), 0.99, 99),
        ([1, 9], 1.0, 9),
    ],
)
def test_quantiles(samples: list[float], share: float, found: float) -> None:
    assert quantile(samples, share) == found


@given(SAMPLES, st.floats(0.01, 1.0))
def test_a_quantile_is_the_smallest_sample_that_enough_are_no_larger_than(
    samples: list[float], share: float
) -> None:
    found = quantile(samples, share)
    assert sum(sample <= found for sample in samples) >= share * len(samples) - 1e-9
    assert sum(sample < found for sample in samples) < share * len(samples)


@pytest.mark.parametrize(
    ("samples", "cell"), [([nan], "–"), ([nan, 2.0], "2.00"), ([], "–"), ([inf, nan], "not in time")]
)
def test_a_sample_that_is_no_number_does_not_cost_the_table(samples: list[float], cell: str) -> None:
    assert spread(samples) == cell


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no samples"):
        quantile([], 0.5)


@given(st.floats(-1, 3), st.floats(0.001, 1e3))
def test_growth_is_the_exponent(power: float, factor: float) -> None:
    sizes = [100.0, 300.0, 1000.0]
    assert growth(sizes, [factor * size**power for size in sizes]) == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize(("sizes", "costs"), [([5, 5], [1, 2]), ([1], [1]), ([1, 2], [0, 1]), ([1, 2], [1])])
def test_what_has_no_growth_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="no growth"):
        growth(sizes, costs)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (0.0123, "0.012"), (0.5, "0.500"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"),
        (-3.21, "-3.21"), (1234.0, "1,230"), (23456.0, "23,500"), (999.9, "1,000"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("samples", "shown"),
    [([], "–"), ([2.0], "2.00"), ([3, 1, 2], "2.00 (1.00–3.00)"), ([1, inf], "not in time")],
)
def test_a_cell_is_a_median_with_its_spread(samples: list[float], shown: str) -> None:
    assert spread(samples) == shown


def test_a_table_that_goes_to_a_file_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    heads = ["", *(f"a client of a long name {number}.0.0" for number in range(9))]
    cells = ["figure", *["36,600 (36,100–40,200)"] * 9]
    show(Sheet(heads, [cells]))
    head, row = capsys.readouterr().out.splitlines()
    assert head.rstrip().split("  ")[-1] == heads[-1]
    assert row.split() == " ".join(cells).split()
    assert "…" not in head + row


def test_a_sheet_is_shown_with_its_notes() -> None:
    console = Console(width=40, record=True, file=io.StringIO())
    show(Sheet(["", "ours"], [["events/s", "5"]], ["a note"]), console)
    assert [line.split() for line in console.export_text().splitlines()] == [
        ["ours"],
        ["events/s", "5"],
        ["a", "note"],
    ]
