"""Texts and times as the page gets them: bounded texts, seconds since 1970, names in their natural order."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

View = dict[str, Any]
"""JSON for the page."""
LONGEST: Final = 1024


def cut(text: str) -> str:
    """Return a text of at most LONGEST characters."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def seconds_of(time: Any) -> float | None:
    """Return a time in seconds since 1970, None for what is none."""
    return round(time.timestamp(), 3) if isinstance(time, datetime) else None


def between(begin: Any, end: Any) -> float | None:
    """Return the seconds between two times, None where one is not known."""
    known = isinstance(begin, datetime) and isinstance(end, datetime)
    return max(0.0, (end - begin).total_seconds()) if known else None


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts worker-2 before worker-10."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part) if part.isdecimal() else -1, part) for part in parts]
