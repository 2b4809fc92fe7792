"""Which nodes of a role have high priority."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil


def is_high(priority: str, rank: int, count: int) -> bool:
    """Whether a node has high priority: `high`, `low`, or a share f: ranks below ⌈count·f⌉ have it."""
    if priority in ("", "low"):
        return False
    return priority == "high" or rank < ceil(_share(priority) * count)


def is_share(priority: str) -> bool:
    """Whether a priority is a share of nodes: a number above 0 and up to 1."""
    return re.fullmatch(r"[0-9]*\.?[0-9]+", priority) is not None and 0 < float(priority) <= 1


def is_low(priority: str, rank: int, count: int) -> bool:
    """Whether a node has low priority; without a priority, or with one that admission refuses, not."""
    return priority == "low" or (is_share(priority) and not is_high(priority, rank, count))


def _share(priority: str) -> Fraction:
    try:
        share = Fraction(priority)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise ValueError(f"{priority!r} is no priority: write high, low, or a share above 0 and up to 1")
    return share
