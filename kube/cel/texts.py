"""Texts: how numbers are written, `'%s'.format(…)`, and the functions that cut and search texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from elasticjob.kube.cel.moments import Duration, Timestamp
from elasticjob.kube.cel.values import CelError, TypeName, kind


def text(value: Any) -> str:
    """Return a value that is a text. Raises TypeError for others."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {kind(value)}")
    return value


def written(value: Any) -> str:
    """Return what `string(value)` is. Raises TypeError for lists, maps and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _short(value)
    if isinstance(value, bytes):
        return value.decode()
    if value is None or isinstance(value, list | dict):
        raise TypeError(f"cannot convert {kind(value)} to a string")
    return str(value)


def _short(value: float) -> str:
    """The shortest text that is read as the same number; with an exponent below 0.0001, from a million on."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else f"{'+' if value > 0 else '-'}Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown, power = "".join(map(str, digits)), len(digits) + exponent - 1
    if -4 <= power < _FROM_EXPONENT:
        return f"{Decimal(repr(value)).normalize():f}" if value else "0"
    rest = f".{shown[1:]}" if len(shown) > 1 else ""
    return f"{'-' * sign}{shown[0]}{rest}e{'+' if power >= 0 else '-'}{abs(power):02d}"


_FROM_EXPONENT: Final = 6


def lowered(value: str) -> str:
    return re.sub("[A-Z]+", lambda each: each[0].lower(), text(value))


def raised(value: str) -> str:
    return re.sub("[a-z]+", lambda each: each[0].upper(), text(value))


def replaced(value: str, old: str, new: str, count: int = -1) -> str:
    found = text(value).count(text(old)) if count < 0 else min(count, text(value).count(text(old)))
    if len(value) + found * (len(text(new)) - len(old)) > _LONGEST:
        raise ValueError(f"the text would be longer than {_LONGEST} characters")
    return value.replace(old, new, count)


def split(value: str, separator: str, count: int = -1) -> list[str]:
    """The parts between separators, at most so many; every character without a separator."""
    if not count:
        return []
    if separator:
        return text(value).split(separator, count - 1 if count > 0 else -1)
    letters = list(text(value))
    return letters if count < 0 or count >= len(letters) else [*letters[: count - 1], value[count - 1 :]]


def joined(value: list[str], separator: str = "") -> str:
    return text(separator).join(map(text, value))


def substring(value: str, start: int, end: int | None = None) -> str:
    last = len(text(value)) if end is None else end
    if not 0 <= start <= len(value):
        raise IndexError(f"index out of range: {start}")
    if not 0 <= last <= len(value):
        raise IndexError(f"index out of range: {last}")
    if start > last:
        raise IndexError(f"invalid substring range. start: {start}, end: {last}")
    return value[start:last]


def character(value: str, place: int) -> str:
    """The character at a place; right behind the last one there is the empty text."""
    if not 0 <= place <= len(text(value)):
        raise IndexError(f"index out of range: {place}")
    return value[place : place + 1]


def first_place(value: str, part: str, start: int = 0) -> int:
    return text(value).find(part, _within(start)) if part else start


def last_place(value: str, part: str, end: int | None = None) -> int:
    if end is None:
        return text(value).rfind(part)
    if _within(end) >= len(value):
        return -1
    return text(value).rfind(part, 0, end + len(part))


def _within(place: int) -> int:
    if place < 0:
        raise IndexError(f"index out of range: {place}")
    return place


def quoted(value: str) -> str:
    return json.dumps(text(value), ensure_ascii=False)


_LONGEST: Final = 100_000_000
"""No text grows longer, so that no expression takes all memory."""

_MOST_DIGITS: Final = 4
_CLAUSE: Final = re.compile(r"%(?:\.(\d+))?([%sdfebxXo])|%")


def formatted(value: str, arguments: list[Any]) -> str:
    """Return a text with its clauses (`%s`, `%d`, `%.2f`, …) replaced, in order. Raises ValueError."""
    left = list(arguments)

    def clause(match: re.Match[str]) -> str:
        if match[2] is None:
            raise ValueError("could not parse formatting clause: unrecognized formatting clause")
        if match[2] == "%":
            return "%"
        if not left:
            raise ValueError(f"index {len(arguments)} out of range")
        if len(match[1] or "") > _MOST_DIGITS:
            raise ValueError(f"{match[0][:20]}: at most {10**_MOST_DIGITS - 1} digits are written")
        return _CLAUSES[match[2]](left.pop(0), int(match[1] or 6))

    return _CLAUSE.sub(clause, text(value))


def _shown(value: Any, _: int = 0) -> str:
    return _nested(value) if isinstance(value, list | dict) or value is None else written(value)


def _nested(value: Any) -> str:
    """A value within a list or map, where texts have quotes."""
    match value:
        case list():
            return f"[{', '.join(map(_nested, value))}]"
        case dict():
            pairs = sorted((_nested(key), _nested(each)) for key, each in value.items())
            return f"{{{', '.join(f'{key}:{each}' for key, each in pairs)}}}"
        case str() | bytes() if type(value) is not TypeName:
            return quoted(written(value))
        case float():
            return f"{value:.6f}"
        case Duration():
            return f'duration("{value}")'
        case Timestamp():
            return f'timestamp("{value}")'
    return "null" if value is None else written(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CelError(f"decimal clause can only be used on integers, was given {kind(value)}")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, float):
        raise CelError(f"fixed-point clause can only be used on doubles, was given {kind(value)}")
    return value


_RAISED: Final = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")


def _scientific(value: Any, digits: int) -> str:
    mantissa, _, power = f"{_number(value):.{digits}e}".partition("e")
    return f"{mantissa}×10{power.removeprefix('+').translate(_RAISED)}"


def _hexadecimal(value: Any) -> str:
    if isinstance(value, str | bytes):
        return (value.encode() if isinstance(value, str) else value).hex()
    return f"{_whole(value):x}"


_CLAUSES: Final[Mapping[str, Callable[[Any, int], str]]] = {
    "s": _shown,
    "d": lambda value, _: str(_whole(value)),
    "f": lambda value, digits: f"{_number(value):.{digits}f}",
    "e": _scientific,
    "b": lambda value, _: f"{_whole(value):b}",
    "o": lambda value, _: f"{_whole(value):o}",
    "x": lambda value, _: _hexadecimal(value),
    "X": lambda value, _: _hexadecimal(value).upper(),
}
