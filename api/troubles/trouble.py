"""A trouble: its cause, the sentence, how serious it is, since when and how often, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

Facts = TypeVar("Facts")
LONGEST: Final = 600
"""Characters of a sentence that are shown in a line: a program may end with any text."""


class Grade(StrEnum):
    """How serious a trouble is; the serious ones first."""

    WRONG = "wrong"
    """Something does not work until a person acts."""
    DOUBTFUL = "doubtful"
    """It works, or mends itself, and a person may want to look."""
    UNKNOWN = "unknown"
    """What could not be examined."""
    OVER = "over"
    """It was so, and is not any more."""
    WELL = "well"
    """What was examined and works."""


@dataclass(frozen=True)
class Trouble:
    """One trouble, or (`well`) what works.

    `cause` is a word of CAUSES. `sentence` stays the same while the trouble lasts: times and counts are
    fields of their own. `act` is what a person does, `commands` mend it or show more of it.
    """

    cause: str
    sentence: str
    grade: Grade
    act: str = ""
    commands: tuple[str, ...] = ()
    since: datetime | None = None
    last: datetime | None = None
    """When it was so last, where it comes and goes."""
    count: int = 1

    def line(self, now: datetime) -> str:
        """Return the sentence with its times: `Hang: no step (since 12 min, 3 times, last 2 min ago)`."""
        times = [
            f"since {span(now - self.since)}" if self.since and self.grade is not Grade.OVER else "",
            f"{self.count} times" if self.count > 1 else "",
            f"last {span(now - self.last)} ago" if self.last else "",
        ]
        told = ", ".join(filter(None, times))
        short = self.sentence if len(self.sentence) <= LONGEST else f"{self.sentence[:LONGEST]}…"
        return f"{short} ({told})" if told else short


Rule = Callable[[Facts, datetime], Iterable[Trouble]]
"""A question about facts: its troubles, none where it does not apply."""


def diagnose(rules: Iterable[Rule[Facts]], facts: Facts, now: datetime) -> tuple[Trouble, ...]:
    """Return the troubles of all rules, the serious ones first; a cause with the same sentence, once."""
    found: dict[tuple[str, str], Trouble] = {}
    for rule in rules:
        for each in rule(facts, now):
            found.setdefault((each.cause, each.sentence), each)
    order = list(Grade)
    return tuple(sorted(found.values(), key=lambda each: order.index(each.grade)))


def well(sentence: str) -> tuple[Trouble, ...]:
    """Return what works."""
    return (Trouble("", sentence, Grade.WELL),)


def span(length: timedelta) -> str:
    """Return a span of time for a sentence, in the largest unit of which there are two."""
    seconds = max(0, int(length.total_seconds()))
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
