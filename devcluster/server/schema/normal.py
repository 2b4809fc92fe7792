"""Built-in objects as the real server would encode them: no nulls, quantities and times in one form."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from elasticjob.devcluster.quantity import parse
from elasticjob.devcluster.server.model.schemas import ANYTHING, PRESERVE, QUANTITY, Schema, items, member

_EMPTY: dict[str, Any] = {}  # Go decodes a null struct as an empty one


def normalise(value: Any, schema: Schema) -> Any:
    """Return the value in normal form; parts without a schema stay as they are."""
    if value is not None and (canonical := _FORMS.get(schema.get("format", ""))):
        return canonical(value)
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


def canonical_quantity(value: Any) -> Any:
    """A quantity with the largest suffix that leaves a whole number: `1024Mi` is `1Gi`, `0.5` is `500m`."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    try:
        amount = parse(value)
    except ValueError:
        return value
    text = str(value)
    if text.endswith("i") and abs(amount) >= 1024:
        return _in_units(amount, 1024, _BINARY)
    nanos = amount * 1000**3
    rounded = Fraction(-(-nanos.numerator // nanos.denominator), 1000**3)  # nothing is finer than a nano
    units = _EXPONENTS if _EXPONENT.search(text) else _DECIMAL
    return _in_units(rounded * 1000**3, 1000, units)


def _in_units(amount: Fraction, step: int, units: Sequence[str]) -> str:
    number, index = -(-amount.numerator // amount.denominator), 0
    while number and index + 1 < len(units) and not number % step:
        number, index = number // step, index + 1
    return f"{number}{units[index]}" if number else "0"


_EXPONENT = re.compile(r"[eE][+-]?[0-9]+$")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_EXPONENTS = ("e-9", "e-6", "e-3", "", *(f"e{power}" for power in range(3, 19, 3)))
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _time(value: Any) -> Any:
    """A timestamp in whole seconds of UTC."""
    return _utc(value, "%Y-%m-%dT%H:%M:%SZ")


def _micro_time(value: Any) -> Any:
    return _utc(value, "%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(value: Any, form: str) -> Any:
    try:
        return datetime.fromisoformat(value).astimezone(UTC).strftime(form)
    except (TypeError, ValueError, OverflowError):
        return value


def _base64(value: Any) -> Any:
    return value.replace("\r", "").replace("\n", "") if isinstance(value, str) else value


_FORMS: dict[str, Callable[[Any], Any]] = {
    QUANTITY: canonical_quantity,
    "date-time": _time,
    "date-time-micro": _micro_time,
    "byte": _base64,
}
