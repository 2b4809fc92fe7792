"""Kubernetes quantities as exact numbers: `500m` is 1/2, `4Gi` is 4,294,967,296."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_UNITS = {
    "": Fraction(1),
    **{unit: Fraction(1, 1000**power) for power, unit in enumerate(("m", "u", "n"), start=1)},
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
}
_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]?|[KMGTPE]i))")

Quantities = Mapping[str, Fraction]


def parse(quantity: str | float) -> Fraction:
    """The number that `quantity` means. Raises ValueError where it is malformed."""
    text = str(quantity)
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"{text!r} is not a quantity; write 2, 500m or 4Gi")
    number, exponent, unit = form.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _UNITS[unit or ""])


def parse_all(quantities: Mapping[str, str | int | float]) -> dict[str, Fraction]:
    """Every resource of a requests or limits map as a number."""
    return {name: parse(quantity) for name, quantity in quantities.items()}


def add(left: Quantities, right: Quantities) -> dict[str, Fraction]:
    """The sum by resource."""
    return {name: left.get(name, Fraction(0)) + right.get(name, Fraction(0)) for name in {**left, **right}}


def greatest(left: Quantities, right: Quantities) -> dict[str, Fraction]:
    """The larger of both by resource."""
    return {
        name: max(left.get(name, Fraction(0)), right.get(name, Fraction(0))) for name in {**left, **right}
    }
