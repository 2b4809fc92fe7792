"""Speed, world and goodput of a job over time, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from math import isnan, nan
from typing import Final, NamedTuple

MOST: Final = 360
"""Points of a series: beyond that every second one goes, and later ones are taken half as often."""


class Point(NamedTuple):
    """A job at one time, in seconds since 1970; nan is what is not known."""

    at: float
    steps: float = nan
    samples: float = nan
    world: float = nan
    goodput: float = nan


WIDTH: Final = len(Point._fields)


class Series:
    """Points in the order of time. 40 bytes each, so that a thousand jobs take 15 MB."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._values = array("d")
        self._apart = 0.0

    def add(self, point: Point) -> None:
        """Take a point, unless it comes too soon after the last one."""
        if len(self) and point.at < self._values[-WIDTH] + max(self._apart, 1e-3):
            return
        self._values.extend(point)
        if len(self) > self._most:
            self._thin()

    def _thin(self) -> None:
        """Leave out every second point; the last one stays."""
        points = list(self)
        kept = points[::-1][::2][::-1]
        self._values = array("d", [value for point in kept for value in point])
        self._apart = (kept[-1].at - kept[0].at) / max(1, len(kept) - 1)

    def __len__(self) -> int:
        return len(self._values) // WIDTH

    def last(self, many: int) -> list[Point]:
        """Return the last points."""
        values = self._values[-many * WIDTH :]
        return [Point(*values[at : at + WIDTH]) for at in range(0, len(values), WIDTH)]

    def __iter__(self) -> Iterator[Point]:
        values = self._values
        return (Point(*values[at : at + WIDTH]) for at in range(0, len(values), WIDTH))


def json_value(value: float) -> float | None:
    """Return a value as JSON has it."""
    return None if isnan(value) else value
