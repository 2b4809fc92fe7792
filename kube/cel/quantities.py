"""Quantities of resources, as expressions read, compare and add them: `500m`, `1.5Gi`, `2e3`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering
from typing import Final

_BINARY: Final[Mapping[str, int]] = {
    unit: 1024**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}
_DECIMAL: Final[Mapping[str, int]] = {
    **{unit: power for power, unit in ((-9, "n"), (-6, "u"), (-3, "m"), (0, ""))},
    **{unit: 3 * power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
}
_WRITTEN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>\d+\.?\d*|\.\d+)(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+|)", re.ASCII
)
_NANO: Final = 10**9
_WHOLE: Final = range(-(2**63), 2**63)


@total_ordering
@dataclass(frozen=True, eq=False)
class Quantity:
    """An amount; `is_split` tells that it was written in parts of one, as in `1000m`, or with many digits."""

    amount: Fraction
    is_split: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)

    def __lt__(self, other: Quantity) -> bool:
        return self.amount < other.amount

    @property
    def is_integer(self) -> bool:
        """Whether servers take it for a whole number: they do not where it was written in parts of one."""
        return self.amount.denominator == 1 and self.amount.numerator in _WHOLE and not self.is_split

    def as_integer(self) -> int:
        """Return the whole number. Raises ValueError if it is none."""
        if not self.is_integer:
            raise ValueError("cannot convert value to integer")
        return self.amount.numerator

    def added(self, other: Quantity | int) -> Quantity:
        if isinstance(other, int):
            return Quantity(self.amount + other, self.is_split)
        return Quantity(self.amount + other.amount, self.is_split or other.is_split)

    def taken(self, other: Quantity | int) -> Quantity:
        return self.added(-other if isinstance(other, int) else Quantity(-other.amount, other.is_split))

    @property
    def sign(self) -> int:
        return (self.amount > 0) - (self.amount < 0)

    def compared(self, other: Quantity) -> int:
        return (self.amount > other.amount) - (self.amount < other.amount)


def quantity(text: str) -> Quantity:
    """Read a quantity; what is finer than a billionth is rounded up. Raises ValueError."""
    match = _WRITTEN.fullmatch(text)
    if match is None:
        form = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
        raise ValueError(f"quantities must match the regular expression '{form}'")
    if max(len(match["number"]), len(match["unit"])) > _MOST_DIGITS:
        raise ValueError("unable to parse numeric part of quantity")
    exact = Fraction(f"0{match['number']}".rstrip(".")) * _unit(match["unit"])
    amount = Fraction(math.ceil(exact * _NANO), _NANO)
    return Quantity(-amount if match["sign"] == "-" else amount, _is_split(match))


def _unit(text: str) -> Fraction:
    if text in _BINARY:
        return Fraction(_BINARY[text])
    power = _DECIMAL[text] if text in _DECIMAL else int(text[1:])
    if abs(power) > _MOST_DIGITS:
        raise ValueError("unable to parse quantity's suffix")
    return Fraction(10) ** power


_MOST_DIGITS: Final = 1000


def _is_split(match: re.Match[str]) -> bool:
    """Whether servers calculate with its digits one by one: with many digits, or parts of a whole."""
    before, _, after = match["number"].partition(".")
    digits, unit = len(before.lstrip("0")), match["unit"]
    if unit in _BINARY:
        power = 10 * (1 + list(_BINARY).index(unit))
        return bool(after) or digits + power * 3 // 10 > 14
    power = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return power < len(after) or digits + len(after) > 18
