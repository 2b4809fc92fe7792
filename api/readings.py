"""Reading what somebody else can edit: labels, annotations, statuses. Nothing here raises.

A value that cannot be read counts as absent: it costs at most what it would have said, and no pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, TypeVar

import msgspec

from elasticjob.kube.json import JsonReader

T = TypeVar("T")

MOST_DIGITS: Final = 9
"""Digits of a number: int() refuses thousands of them, and statuses hold 32 bits."""
VERSION_DIGITS: Final = 20
"""Those of 64 bits."""
LONGEST_SECONDS: Final = 3_153_600_000
"""A hundred years: more would overflow a date."""
END_OF_TIME: Final = datetime.max.replace(tzinfo=UTC)

_COUNTS: Final = JsonReader(dict[str, object])


def is_number(text: str | None) -> bool:
    """Whether a text is a number from 0 on, of at most nine digits."""
    return text is not None and len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal()


def number(text: str | None, otherwise: int = 0) -> int:
    """Return the number in a text; `otherwise` where there is none, or too large a one."""
    return int(text) if text is not None and is_number(text) else otherwise


def version(text: str) -> int:
    """Return a resourceVersion as the number by which versions of one kind are in order (KEP 5504)."""
    return int(text) if len(text) <= VERSION_DIGITS and text.isascii() and text.isdecimal() else 0


def decode(text: str | None, reader: JsonReader[T]) -> T | None:
    """Return the JSON in a text; None for any other text."""
    try:
        return reader.decode(text or "")
    except (msgspec.DecodeError, UnicodeError):
        return None


def moment(text: str | None) -> datetime | None:
    """Return the time with a zone in a text; None for any other text."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else None


def counts(text: str | None) -> dict[str, int]:
    """Return the numbers from 0 on in a JSON object, by name; {} for any other text."""
    found = decode(text, _COUNTS) or {}
    most = 10**MOST_DIGITS
    return {name: each for name, each in found.items() if type(each) is int and 0 <= each < most}


def by_index(remembered: Mapping[str, int]) -> dict[int, int]:
    """Return numbers by index, without those whose key is no index."""
    return {int(index): count for index, count in remembered.items() if is_number(index)}


def indexes(text: str, most: int) -> frozenset[int]:
    """Return the numbers below `most` in a text such as `0-3,7`; a part that is none counts as absent."""
    parts = (part.partition("-") for part in text.split(","))
    bounds = ((first, last if dash else first) for first, dash, last in parts)
    known = ((int(first), int(last)) for first, last in bounds if is_number(first) and is_number(last))
    return frozenset(index for first, last in known for index in range(first, min(last + 1, most)))


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as `indexes` reads them, as short as possible."""
    groups = groupby(enumerate(sorted(numbers)), key=lambda each: each[1] - each[0])
    runs = ([number for _, number in group] for _, group in groups)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def span(seconds: float) -> timedelta:
    """Return a time of so many seconds, a hundred years at most."""
    return timedelta(seconds=min(seconds, LONGEST_SECONDS))


def after(moment: datetime, delay: timedelta) -> datetime:
    """Return the moment after `delay`, the last that a date can hold at most."""
    try:
        return moment + delay
    except OverflowError:
        return END_OF_TIME
