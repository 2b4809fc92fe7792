"""Built-in objects as the real server would decode and encode them: no nulls, quantities as text."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from elasticjob.devcluster.server.schemas import ANYTHING, PRESERVE, QUANTITY, Schema, items, member

_EMPTY: dict[str, Any] = {}  # what Go makes of a null among structs


def normalise(value: Any, schema: Schema) -> Any:
    """Return the value in normal form; parts without a schema stay as they are."""
    if schema.get("format") == QUANTITY:
        return _quantity(value)
    if schema.get(PRESERVE) and not schema.get("properties"):
        return value
    if isinstance(value, dict):
        return {
            name: normalise(child, below)
            for name, child in value.items()
            if child is not None and not _is_left_out(child, below := member(schema, name) or ANYTHING, name)
        }
    if isinstance(value, list):
        below = items(schema)
        return [normalise(_EMPTY if item is None else item, below) for item in value]
    return value


def _is_left_out(value: Any, schema: Schema, name: str) -> bool:
    """Whether Go leaves an empty value out: lists and maps, but no structs, and no few that are always
    there.
    """
    if value == []:
        return name not in _ALWAYS
    return value == {} and "additionalProperties" in schema and "properties" not in schema


_ALWAYS = frozenset({"containers", "rules", "versions", "endpoints", "addresses", "ports", "paths"})


def _quantity(value: Any) -> Any:
    if isinstance(value, str):
        return _canonical(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if value == int(value) and isinstance(value, int) else _decimal(value)


def _canonical(text: str) -> str:
    """A quantity with a fraction in the largest unit that has none; others as they stand."""
    match = _FRACTION.fullmatch(text)
    if match is None:
        return text
    units = _BINARY if match["unit"].endswith("i") else _DECIMAL
    amount = Fraction(match["number"])
    index = units.index(match["unit"])
    while amount.denominator != 1 and index:
        index -= 1
        amount *= 1024 if units is _BINARY else 1000
    return f"{amount}{units[index]}" if amount.denominator == 1 else text


_FRACTION = re.compile(r"(?P<number>[+-]?\d*\.\d+)(?P<unit>[numkMGTPE]|[KMGTPE]i|)")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _decimal(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"
