"""What is known of an expression before it is evaluated: its cost, its kind, its size, at most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from elasticjob.kube.cel.shapes import DYN, Shape

UNBOUNDED: Final = 2**64 - 1
TRAVERSAL: Final = 0.1
PATTERN: Final = 0.25
NEW_LIST: Final = 10
NEW_MAP: Final = 30


class Size(NamedTuple):
    """How many characters, elements or entries a value has."""

    least: int
    most: int

    def joined(self, other: Size) -> Size:
        """Return a size that holds both."""
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = Size(0, UNBOUNDED)
ONE: Final = Size(1, 1)


@dataclass(frozen=True)
class Seen:
    """An expression, as far as its cost needs: what it costs, its kind, its path, its size if known."""

    cost: int
    shape: Shape = DYN
    path: tuple[str, ...] = ()
    size: Size | None = None
    element: Size | None = None
    literal: object = None

    @property
    def bound(self) -> Size:
        """The size, or that nothing is known of it."""
        return UNKNOWN if self.size is None else self.size


def plus(*costs: int) -> int:
    """Return a sum that stays UNBOUNDED."""
    return min(sum(costs), UNBOUNDED)


def times(first: int, second: int) -> int:
    """Return a product that stays UNBOUNDED."""
    return min(first * second, UNBOUNDED)


def per(size: int, factor: float) -> int:
    """Return a size times a factor, rounded up; it stays UNBOUNDED."""
    return min(math.ceil(size * factor), UNBOUNDED)


BOOL: Final = Shape("bool")
INT: Final = Shape("int")
DOUBLE: Final = Shape("double")
TEXT: Final = Shape("string")


def element_of(shape: Shape) -> Shape:
    if shape.kind == "optional" and shape.element is not None:
        return element_of(shape.element)
    return shape.element or DYN


def list_of(shape: Shape) -> Shape:
    return Shape("list", element=shape)
