"""Functions and methods that expressions may call."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from elasticjob.kube.cel.values import NONE, CelError, Optional, kind, whole
from elasticjob.kube.re2 import found, matches


def called(function: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
    try:
        return function(*arguments)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise CelError(f"{name}({', '.join(kind(each) for each in arguments)}): {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {kind(value)}")
    return value


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"cannot convert {kind(value)} to a string")


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise TypeError(f"{kind(value)} has no size")
    return len(value)


_WHOLE = re.compile(r"[+-]?[0-9]+")


def _int(value: Any) -> int:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError(f"{value!r} is no whole number")
    return whole(int(value))


def _uint(value: Any) -> int:
    if (answer := _int(value)) < 0:
        raise ValueError(f"{answer} is below zero")
    return answer


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return _text(text).replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    return (
        list(_text(text)) if not separator else _text(text).split(separator, count - 1 if count > 0 else -1)
    )


def _sorted(value: list[Any]) -> bool:
    return all(first <= second for first, second in pairwise(value))


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(_text(text)) if end is None else end
    if not 0 <= start <= last <= len(text):
        raise IndexError(f"{start} to {last} of {len(text)} characters")
    return text[start:last]


def _character(text: str, place: int) -> str:
    """The character at a place; right behind the last one there is the empty text."""
    if not 0 <= place <= len(_text(text)):
        raise IndexError(f"{place} of {len(text)} characters")
    return text[place : place + 1]


def _first_index(value: Any, part: Any) -> int:
    if isinstance(value, str):
        return value.find(part)
    return next((place for place, item in enumerate(value) if item == part), -1)


METHODS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "contains": lambda text, part: part in _text(text),
    "startsWith": lambda text, part: _text(text).startswith(part),
    "endsWith": lambda text, part: _text(text).endswith(part),
    "matches": lambda text, pattern: matches(pattern, _text(text)),
    "lowerAscii": lambda text: _text(text).lower(),
    "upperAscii": lambda text: _text(text).upper(),
    "trim": lambda text: _text(text).strip(),
    "replace": _replace,
    "split": _split,
    "join": lambda value, separator="": separator.join(value),
    "substring": _substring,
    "indexOf": _first_index,
    "charAt": _character,
    "find": lambda text, pattern: next(found(pattern, _text(text)), ""),
    "findAll": lambda text, pattern: list(found(pattern, _text(text))),
    "lastIndexOf": lambda value, part: _last_index(value, part),
    "reverse": lambda value: value[::-1],
    "isSorted": _sorted,
    "sum": sum,
    "min": min,
    "max": max,
    "hasValue": lambda value: value is not NONE,
    "value": lambda value: _present(value),
    "orValue": lambda value, otherwise: otherwise if value is NONE else value.value,
}


def _present(value: Optional) -> Any:
    if value is NONE:
        raise ValueError("optional.none() dereference")
    return value.value


def _last_index(value: Any, part: Any) -> int:
    if isinstance(value, str):
        return value.rfind(part)
    return max((place for place, item in enumerate(value) if item == part), default=-1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "int": _int,
    "uint": _uint,
    "double": float,
    "string": _string,
    "type": kind,
    "dyn": lambda value: value,
    "sets.contains": lambda first, second: all(item in first for item in second),
    "sets.intersects": lambda first, second: any(item in first for item in second),
    "sets.equivalent": lambda first, second: (
        all(item in first for item in second) and all(item in second for item in first)
    ),
    "matches": lambda text, pattern: matches(pattern, _text(text)),
}
