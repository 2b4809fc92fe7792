"""Pieces of sentences that conditions, events, logs and refusals share."""

from __future__ import annotations

from collections.abc import Iterable


def few(parts: Iterable[str], most: int = 3, separator: str = ", ") -> str:
    """Return the first `most` parts, and how many more there are: `a, b, c and 2 more`.

    Whole sentences (separator "; ") end with `; and 2 more`.
    """
    shown = list(parts)
    left = len(shown) - most
    joint = " and" if separator == ", " else f"{separator}and"
    return separator.join(shown[:most]) + (f"{joint} {left} more" if left > 0 else "")


def amount(count: int, noun: str) -> str:
    """Return a number of things: `1 node`, `2 nodes`."""
    return f"{count} {noun}{'s' * (count != 1)}"
