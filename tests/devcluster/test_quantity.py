"""Quantities as exact numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.devcluster.quantity import add, greatest, parse, parse_all


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (2, 2),
        (0.5, Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("100u", Fraction(1, 10_000)),
        ("1k", 1000),
        ("4Gi", 4 << 30),
        ("1.5Ki", 1536),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        ("-1", -1),
        (".5", Fraction(1, 2)),
    ],
)
def test_parse(text: str | float, number: Fraction) -> None:
    assert parse(text) == number


@pytest.mark.parametrize("text", ["", "x", "1Zi", "1 Gi", "4GB", "--1"])
def test_malformed(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(text)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 9).map(str)).map(
    parse_all
)


@given(AMOUNTS, AMOUNTS)
def test_sums_and_maxima(left: dict[str, Fraction], right: dict[str, Fraction]) -> None:
    assert add(left, right) == add(right, left)
    most, both = greatest(left, right), add(left, right)
    assert set(most) == set(both) == {*left, *right}
    assert all(most[name] <= both[name] for name in both)
