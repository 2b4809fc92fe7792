"""What an examination finds: how serious it is, a sentence, and the commands that come next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

Seen = TypeVar("Seen")


class Grade(StrEnum):
    """How serious a finding is."""

    WRONG = "wrong"
    """Something does not work until a person acts."""
    DOUBTFUL = "doubtful"
    """It works, and a person may want to look."""
    WELL = "well"
    """What was examined and works."""
    UNKNOWN = "unknown"
    """What could not be examined."""


@dataclass(frozen=True)
class Finding:
    """One finding; `commands` mend it, or show more of it."""

    grade: Grade
    sentence: str
    commands: tuple[str, ...] = ()


Rule = Callable[[Seen, datetime], Iterable[Finding]]
"""A question about what was seen: its findings, none where it does not apply."""


def diagnose(rules: Iterable[Rule[Seen]], seen: Seen, now: datetime) -> tuple[Finding, ...]:
    """Return the findings of all rules, the serious ones first; a sentence that two rules have, once."""
    found: dict[str, Finding] = {}
    for rule in rules:
        for each in rule(seen, now):
            found.setdefault(each.sentence, each)
    order = list(Grade)
    return tuple(sorted(found.values(), key=lambda each: order.index(each.grade)))


def wrong(sentence: str, *commands: str) -> Iterator[Finding]:
    """Yield a finding on which a person must act."""
    yield Finding(Grade.WRONG, sentence, commands)


def doubtful(sentence: str, *commands: str) -> Iterator[Finding]:
    """Yield a finding at which a person may want to look."""
    yield Finding(Grade.DOUBTFUL, sentence, commands)


def well(sentence: str, *commands: str) -> Iterator[Finding]:
    """Yield what works."""
    yield Finding(Grade.WELL, sentence, commands)
