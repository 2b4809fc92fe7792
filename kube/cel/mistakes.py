"""What is wrong with an expression and where, in the words of API servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from elasticjob.kube.cel.types import Type


@dataclass(frozen=True)
class Mistake:
    """`place` is the character of the text, from 0, at which it is shown; servers give no `advice`."""

    place: int
    message: str
    advice: str = ""


def shown(text: str, mistakes: Iterable[Mistake]) -> str:
    """Return the mistakes as servers show them, each with its line and an arrow below it."""
    lines = text.split("\n")
    placed = sorted((_located(lines, each.place), each.message) for each in mistakes)
    return "\n".join(_shown(lines, row, column, message) for (row, column), message in placed)


_MOST_SHOWN: Final = 16_384


def _located(lines: list[str], place: int) -> tuple[int, int]:
    """The line and the column of a character, both from 0."""
    for row, line in enumerate(lines):
        if place <= len(line):
            return row, place
        place -= len(line) + 1
    return len(lines) - 1, len(lines[-1])


def _shown(lines: list[str], row: int, column: int, message: str) -> str:
    line = lines[row].replace("\t", " ")
    told = f"ERROR: <input>:{row + 1}:{column + 1}: {message}"
    if len(line) > _MOST_SHOWN:
        return told
    dots = "".join("." if each.isascii() else "\uff0e" for each in line[:column])
    arrow = "^" if line[column : column + 1].isascii() else "\uff3e"
    return f"{told}\n | {line}\n | {dots}{arrow}"


def undeclared(name: str) -> str:
    return f"undeclared reference to '{name}' (in container '')"


def no_overload(function: str, kinds: list[Type], *, of_target: bool) -> str:
    """No form of a function takes these types; the first may be what it is a method of."""
    target = f"{kinds[0]}." if of_target else ""
    given = ", ".join(str(each) for each in kinds[of_target:])
    return f"found no matching overload for '{function}' applied to '{target}({given})'"


def undefined_field(name: str) -> str:
    return f"undefined field '{name}'"


def no_fields(kind: Type) -> str:
    return f"type '{kind}' does not support field selection"


def mismatch(wanted: Type, found: Type) -> str:
    return f"expected type '{wanted}' but found '{found}'"


def no_range(kind: Type) -> str:
    return f"expression of type '{kind}' cannot be range of a comprehension (must be list, map, or dynamic)"
