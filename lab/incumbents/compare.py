"""Differences between incumbents and ours: all that was seen, after masks, and those the docs explain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from lab.incumbents.oracle import OURS, Explained, Oracle, Seen

NOTHING: Final = "–"
SHOWN: Final = 400
BEFORE: Final = 60
"""Letters that are shown of values before they part."""
OF_A_RANK: Final = re.compile(r"(\d+\.\d+) (.*)", re.DOTALL)
"""A key of one rank and start."""


@dataclass(frozen=True)
class Difference:
    """The values of a key in a story, by whose they are, and for which ranks and starts."""

    story: str
    key: str
    values: Mapping[str, object]
    where: str = ""

    @property
    def text(self) -> str:
        """All values, in lines, from where they part."""
        texts = {who: str(value) for who, value in self.values.items()}
        letters = zip(*texts.values(), strict=False)
        begin = max(0, next((at for at, each in enumerate(letters) if len({*each}) > 1), 0) - BEFORE)
        shown = (f"    {who:10}{'…' * (begin > 0)}{text[begin:][:SHOWN]!r}" for who, text in texts.items())
        return "\n".join([f"  {self.where} {self.key}", *shown])


def differences(oracle: Oracle, story: str, seen: Seen) -> Iterator[Difference]:
    """Yield the keys whose value is with ours as with none of the others, once for alike ranks and starts."""
    alike: dict[tuple[str, str], tuple[list[str], dict[str, object]]] = {}
    for key in dict.fromkeys(key for facts in seen.values() for key in facts):
        if any(fnmatchcase(key, mask) for mask, _ in oracle.masks):
            continue
        values = {who: oracle.masked(story, facts.get(key, NOTHING)) for who, facts in seen.items()}
        if values[OURS] not in [value for who, value in values.items() if who != OURS]:
            where, what = found.groups() if (found := OF_A_RANK.fullmatch(key)) else ("", key)
            alike.setdefault((what, repr(values)), ([], values))[0].append(where)
    for (what, _), (places, values) in alike.items():
        yield Difference(story, what, values, ", ".join(places))


def explanation(oracle: Oracle, found: Difference) -> Explained | None:
    """Return the row that explains a difference."""
    what = (found.story, found.key, str(found.values[OURS]))
    rows = oracle.explained
    return next((row for row in rows if all(map(fnmatchcase, what, (row.stories, row.keys, row.ours)))), None)


def missing_rows(oracle: Oracle) -> Iterator[str]:
    """Yield the rows that the page does not have."""
    rows = oracle.rows_of_page()
    for row in sorted({each.row for each in oracle.explained}):
        if not any(row in line for line in rows):
            yield f"no row of {oracle.page.name} has {row!r}"
