"""Scales from values to coordinates, linear and logarithmic, their ticks, and thinning of long series."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Maps `domain` (low, high) to `extent` (from, to); logarithmic scales need a positive domain."""

    domain: tuple[float, float]
    extent: tuple[float, float]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = map(self._measure, self.domain)
        share = (self._measure(value) - low) / (high - low) if high > low else 0.5
        start, end = self.extent
        return start + min(1.0, max(0.0, share)) * (end - start)

    def ticks(self, about: int) -> tuple[float, ...]:
        """Return roughly `about` round values inside the domain."""
        return decades(*self.domain) if self.logarithmic else round_values(*self.domain, about)

    def _measure(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.logarithmic else value


def round_values(low: float, high: float, about: int) -> tuple[float, ...]:
    """Return multiples of 1, 2 or 5 times a power of ten between `low` and `high`, about `about` of them."""
    if high <= low:
        return (low,)
    rough = (high - low) / max(1, about)
    power = 10.0 ** math.floor(math.log10(rough))
    stride = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / stride - 1e-9), math.floor(high / stride + 1e-9)
    return tuple(round(place * stride, 10) for place in range(first, last + 1))


def decades(low: float, high: float) -> tuple[float, ...]:
    """Return the powers of ten between two positive values."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return tuple(10.0**power for power in range(first, last + 1))


def thin(points: Sequence[Point], buckets: int) -> tuple[Point, ...]:
    """Return the lowest and the highest point of each of `buckets` equal stretches, so no peak is lost."""
    if len(points) <= 2 * buckets:
        return tuple(points)
    size = len(points) / buckets
    kept = (points[int(place * size) : int((place + 1) * size)] for place in range(buckets))
    extremes = ((min(part, key=_height), max(part, key=_height)) for part in kept)
    return tuple(point for pair in extremes for point in sorted(set(pair)))


def rows(spans: Iterable[tuple[float, float]], gap: float) -> tuple[int, ...]:
    """Return for each span (left, right), ordered by left, the lowest row without an overlap."""
    ends: list[float] = []
    placed = []
    for left, right in spans:
        row = next((place for place, end in enumerate(ends) if end + gap <= left), len(ends))
        ends[row:] = [right, *ends[row + 1 :]]
        placed.append(row)
    return tuple(placed)


def stairs(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the corners of a line that holds each value until the next one."""
    corners = list(points[:1])
    for before, after in pairwise(points):
        corners += [(after[0], before[1]), after]
    return tuple(corners)


def _height(point: Point) -> float:
    return point[1]
