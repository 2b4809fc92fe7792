"""What arguments have to be: asked where an object is made, by its constructor or by a decoder."""

from __future__ import annotations

from numbers import Integral
from sys import float_info
from typing import Any


def check(owner: object, field: str, holds: bool, right: str) -> None:
    """Raise ValueError, naming a field, its value and the right ones, unless it holds."""
    wants(f"{type(owner).__name__}: {field}", getattr(owner, field), holds, right)


def wants(what: str, given: object, holds: bool, right: str) -> None:
    """Raise ValueError, naming an argument, what was given and the right ones, unless it holds."""
    if not holds:
        raise ValueError(f"{what} is {given!r}: give {right}")


def whole(what: str, given: Any, right: str, least: int = 1) -> int:
    """Return a whole number, which may be of numpy. ValueError as in `wants` for others, and smaller ones."""
    holds = not isinstance(given, bool) and isinstance(given, Integral) and int(given) >= least
    wants(what, given, holds, right)
    return int(given)


def is_number(value: object) -> bool:
    """Whether this is a float or an int, and finite."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -float_info.max <= value <= float_info.max
    )


def is_integer(value: object) -> bool:
    """Whether this is an int."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: object) -> bool:
    """Whether this is a text that can be sent."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value
