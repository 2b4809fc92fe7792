"""Moments and spans of time, as expressions read, write and calculate them: in whole nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

SECOND: Final = 1_000_000_000
_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_LONG_UNITS: Final[Mapping[str, int]] = {"d": 86_400 * SECOND, "w": 7 * 86_400 * SECOND}
_PART: Final = re.compile(r"(\d++\.?\d*+|\.\d++)([a-z\u00b5\u03bc]++)", re.ASCII)
_WHOLE: Final = re.compile(rf"([-+]?)((?:{_PART.pattern})++)", re.ASCII)
_SPAN: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time."""

    nanoseconds: int

    def __post_init__(self) -> None:
        if self.nanoseconds not in _SPAN:
            raise OverflowError("integer overflow")

    def __str__(self) -> str:
        seconds = Decimal(self.nanoseconds) / SECOND
        return f"{seconds.normalize():f}s"


@dataclass(frozen=True, order=True)
class Timestamp:
    """A moment, in nanoseconds since 1970, within the years 1 to 9999; it is written with its zone."""

    nanoseconds: int
    offset: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not _FIRST <= self.nanoseconds <= _LAST:
            raise OverflowError("timestamp overflow")

    def __str__(self) -> str:
        whole, rest = divmod(self.nanoseconds, SECOND)
        fraction = f".{rest:09d}".rstrip("0").rstrip(".")
        day = (_EPOCH + timedelta(seconds=whole + self.offset)).replace(tzinfo=None)
        return f"{day.isoformat()}{fraction}{self._zone()}"

    def _zone(self) -> str:
        """The distance from UTC, in seconds, as `+01:00`."""
        hours, minutes = divmod(abs(self.offset) // 60, 60)
        return f"{'-' if self.offset < 0 else '+'}{hours:02d}:{minutes:02d}" if self.offset else "Z"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = -62_135_596_800 * SECOND
_LAST: Final = 253_402_300_800 * SECOND - 1


def duration(text: str) -> Duration:
    """Read a span as Go writes it: `1h30m`, `-1.5s`, `0`. Raises ValueError."""
    return _span(text, _UNITS)


def long_duration(text: str) -> Duration:
    """Read a span as fields of the format `duration` have it: days and weeks, too."""
    return _span(text.replace(" ", ""), {**_UNITS, **_LONG_UNITS})


def _span(text: str, units: Mapping[str, int]) -> Duration:
    if text in ("0", "+0", "-0"):
        return Duration(0)
    match = _WHOLE.fullmatch(text)
    parts = _PART.findall(match[2]) if match else []
    if match is None or any(unit not in units for _, unit in parts):
        raise ValueError(f'invalid duration "{text}"')
    total = sum(int(Decimal(number) * units[unit]) for number, unit in parts)
    return Duration(-total if match[1] == "-" else total)


_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:[.,](\d+))?(?:([Zz])|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


def timestamp(text: str) -> Timestamp:
    """Read a moment of RFC 3339: `2026-01-31T10:00:00.5+01:00`. Raises ValueError."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f'parsing time "{text}": it is no moment of RFC 3339')
    day = datetime.strptime(match[1].upper(), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    offset = 0 if match[3] else int(f"{match[4]}1") * (int(match[5]) * 3600 + int(match[6]) * 60)
    whole = (day - _EPOCH) // timedelta(seconds=1) - offset
    return Timestamp(whole * SECOND + int((match[2] or "0")[:9].ljust(9, "0")), offset)


def date(text: str) -> Timestamp:
    """Read a day, `2026-01-31`, as its first moment. Raises ValueError."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise ValueError(f'parsing time "{text}": it is no day, as 2026-01-31 is one')
    day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    return Timestamp((day - _EPOCH) // timedelta(seconds=1) * SECOND)


def _local(moment: Timestamp, zone: str) -> datetime:
    return (_EPOCH + timedelta(seconds=moment.nanoseconds // SECOND)).astimezone(_zone(zone))


def _zone(name: str) -> tzinfo:
    """A time zone by its name, or by its distance, as in `-08:00`. Raises ValueError."""
    if match := re.fullmatch(r"([+-]?)(\d\d):(\d\d)", name):
        distance = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(-distance if match[1] == "-" else distance)
    try:
        return ZoneInfo(name) if name not in ("", "UTC") else UTC
    except (KeyError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name}") from None


_PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda day: day.year,
    "getMonth": lambda day: day.month - 1,
    "getDayOfYear": lambda day: day.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda day: day.day - 1,
    "getDate": lambda day: day.day,
    "getDayOfWeek": lambda day: day.isoweekday() % 7,
    "getHours": lambda day: day.hour,
    "getMinutes": lambda day: day.minute,
    "getSeconds": lambda day: day.second,
}
_LENGTHS: Final[Mapping[str, int]] = {
    "getHours": 3600 * SECOND,
    "getMinutes": 60 * SECOND,
    "getSeconds": SECOND,
    "getMilliseconds": SECOND // 1000,
}


def part_of(name: str) -> Callable[..., int]:
    """Return the method `name` of moments (in a zone, UTC if none is told) and of spans, which it counts."""

    def part(value: Timestamp | Duration, zone: str = "UTC") -> int:
        if isinstance(value, Duration):
            whole = abs(value.nanoseconds) // _LENGTHS[name]
            return whole if value.nanoseconds >= 0 else -whole
        if not isinstance(value, Timestamp):
            raise TypeError("only moments and spans of time have parts")
        if name == "getMilliseconds":
            return value.nanoseconds % SECOND // 1_000_000
        return _PARTS[name](_local(value, zone))

    return part


PARTS: Final[Mapping[str, Callable[..., int]]] = {
    name: part_of(name) for name in (*_PARTS, "getMilliseconds")
}


def added(first: object, second: object) -> Timestamp | Duration:
    """A sum with a span in it. Raises TypeError for others, OverflowError."""
    match first, second:
        case Duration(left), Duration(right):
            return Duration(left + right)
        case (Timestamp(left, offset), Duration(right)) | (Duration(right), Timestamp(left, offset)):
            return Timestamp(left + right, offset)
    raise TypeError("a span is added to a moment or a span")


def taken_away(first: object, second: object) -> Timestamp | Duration:
    """A difference of moments and spans. Raises TypeError for others, OverflowError."""
    match first, second:
        case (Duration(left), Duration(right)) | (Timestamp(left), Timestamp(right)):
            return Duration(left - right)
        case Timestamp(left, offset), Duration(right):
            return Timestamp(left - right, offset)
    raise TypeError("a span or a moment is taken from a moment")
