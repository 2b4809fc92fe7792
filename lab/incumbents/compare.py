"""Differences between an incumbent and ours: all that was seen, after masks, and those the docs explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from lab import explained
from lab.explained import Explained
from lab.incumbents.oracle import INCUMBENT, OURS, Oracle, Seen

NOTHING: Final = "–"
SHOWN: Final = 400


@dataclass(frozen=True)
class Difference:
    """The two values of a key in a story."""

    story: str
    key: str
    incumbent: object
    ours: object

    @property
    def text(self) -> str:
        """Both values, in lines."""
        values = ((INCUMBENT, self.incumbent), (OURS, self.ours))
        return "\n".join([f"  {self.key}", *(f"    {name:10}{str(value)[:SHOWN]}" for name, value in values)])


def differences(oracle: Oracle, story: str, seen: Seen) -> Iterator[Difference]:
    """Yield the keys whose values differ, in the order in which they were noted."""
    theirs, ours = seen[INCUMBENT], seen[OURS]
    for key in dict.fromkeys((*theirs, *ours)):
        if any(fnmatchcase(key, mask) for mask, _ in oracle.masks):
            continue
        found = Difference(story, key, theirs.get(key, NOTHING), ours.get(key, NOTHING))
        if found.incumbent != found.ours:
            yield found


def explanation(oracle: Oracle, found: Difference) -> Explained | None:
    """Return the row that explains a difference."""
    return explained.explanation(oracle.explained, found.story, found.key, found.ours)


def missing_rows(oracle: Oracle) -> Iterator[str]:
    """Yield the rows that the page does not have."""
    return explained.missing_rows(oracle.page, oracle.explained)
