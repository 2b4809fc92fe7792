"""Differences between an incumbent and ours that a table of the docs explains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Explained:
    """Differences that a row of the docs explains: `row` is a text of that row, the rest are patterns."""

    stories: str
    keys: str
    row: str
    ours: str = "*"


def explanation(rows: Iterable[Explained], story: str, key: str, ours: object) -> Explained | None:
    """Return the row that explains a difference."""
    what = (story, key, str(ours))
    return next((row for row in rows if all(map(fnmatchcase, what, (row.stories, row.keys, row.ours)))), None)


def missing_rows(page: Path, explained: Iterable[Explained]) -> Iterator[str]:
    """Yield the rows that the page does not have."""
    text = page.read_text() if page.exists() else ""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for row in sorted({each.row for each in explained}):
        if not any(row in line for line in rows):
            yield f"no row of {page.name} has {row!r}"
