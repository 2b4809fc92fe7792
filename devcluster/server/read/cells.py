"""Cells of a `kubectl get` table: finding a value in an object, and formatting it.

What depends on the time of asking (ages) is marked by its class, and told when the table is made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from elasticjob.devcluster.server.model.jsonpath import compile_path
from elasticjob.devcluster.server.model.registry import Column
from elasticjob.devcluster.server.model.store import Manifest

NONE = "<none>"


class Age(str):
    """A time that is shown as its age. Resolved when the table is made."""


class Restarts(str):
    """`count|time of the last one`, shown as "3 (5m ago)"."""


def age(path: str = ".metadata.creationTimestamp") -> Callable[[Manifest], Any]:
    find = compile_path(path)
    return lambda item: Age(next(iter(find(item)), "") or "")


def text(path: str, empty: str = NONE) -> Callable[[Manifest], Any]:
    """The value at a JSONPath as text."""
    find = compile_path(path)

    def read(item: Manifest) -> str:
        found = [value for value in find(item) if value is not None and value != ""]
        return ",".join(str(value) for value in found) if found else empty

    return read


def count(path: str) -> Callable[[Manifest], Any]:
    """How many members the object or list at a JSONPath has."""
    find = compile_path(path)
    return lambda item: sum(len(value) for value in find(item) if isinstance(value, dict | list))


def number(path: str) -> Callable[[Manifest], Any]:
    find = compile_path(path)
    return lambda item: next((value for value in find(item) if value is not None), 0)


def human(since: str, now: datetime) -> str:
    """`2026-01-01T00:00:00Z` → "5m3s", as kubectl writes durations."""
    if not since:
        return "<unknown>"
    seconds = int((now - datetime.fromisoformat(since).astimezone(UTC)).total_seconds())
    return "<invalid>" if seconds < -1 else human_seconds(max(0, seconds))


def human_seconds(seconds: int) -> str:
    """The two leading units, and only one where the second would not matter."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _pair(days // 365, "y", days % 365, "d")


def _pair(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def column(name: str, read: Callable[[Manifest], Any], wide: bool = False, type_: str = "string") -> Column:
    return Column(name, read, type_, "name" if name == "Name" else "", priority=int(wide))


NAME = column("Name", text(".metadata.name"))
AGE = column("Age", age())


def pairs(path: str) -> Callable[[Manifest], Any]:
    find = compile_path(path)

    def read(item: Manifest) -> str:
        found = next(iter(find(item)), None) or {}
        return ",".join(f"{key}={value}" for key, value in sorted(found.items())) or NONE

    return read


def subjects(kind: str) -> Callable[[Manifest], Any]:
    def read(binding: Manifest) -> str:
        found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        return ", ".join("/".join(filter(None, (each.get("namespace"), each["name"]))) for each in found)

    return read


def ratio(numerator: str, denominator: str) -> Callable[[Manifest], Any]:
    over, under = number(numerator), number(denominator)
    return lambda item: f"{over(item)}/{under(item)}"
