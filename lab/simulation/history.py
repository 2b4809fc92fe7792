"""A history as text: its seed, and a line for each thing that happens: `SECONDS NAME field=value …`.

    seed 7
    0 submit job=a strategy=Local workers=2
    4 crash write=12 when=before back=1
    6.5 scale job=a workers=3

Lines of the same instant keep their order; what follows a `#` is a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Self

Value = str | int | float
MOST_LINES: Final = 60
MOST_SECONDS: Final = 86_400.0


class Misspelt(ValueError):
    """A text that is no history; the message names its line."""


@dataclass(frozen=True)
class Line:
    """One thing that happens, so many seconds after the beginning."""

    at: float
    name: str
    given: Mapping[str, Value]

    def __str__(self) -> str:
        return " ".join(
            (f"{self.at:g}", self.name, *(f"{name}={value}" for name, value in self.given.items()))
        )


@dataclass(frozen=True)
class History:
    """All that happens; delays and places are drawn from the seed, for each object by its name."""

    seed: int
    lines: tuple[Line, ...] = ()

    def __str__(self) -> str:
        return "\n".join((f"seed {self.seed}", *map(str, self.lines)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the history of a text. Raises Misspelt."""
        seed, lines = 0, list[Line]()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            try:
                match words:
                    case []:
                        continue
                    case ["seed", digits]:
                        seed = int(digits)
                    case [at, name, *fields]:
                        given = dict(map(_field, fields))
                        if len(given) < len(fields):
                            raise _misspelt(number, line, "a field is given twice")
                        lines.append(Line(_seconds(at), name, given))
                    case _:
                        raise _misspelt(number, line, "give SECONDS NAME field=value …")
            except ValueError as error:
                raise _misspelt(number, line, error) from error
        if len(lines) > MOST_LINES:
            raise Misspelt(f"{len(lines)} lines: a history has {MOST_LINES} at most")
        return cls(seed, tuple(sorted(lines, key=lambda line: line.at)))

    def drawn(self, *about: object) -> Random:
        """Return what is drawn from for one thing."""
        return Random(f"{self.seed} {about}")

    def without(self, number: int, many: int = 1) -> Self:
        """Return it without some lines."""
        return replace(self, lines=(*self.lines[:number], *self.lines[number + many :]))

    def shorter(self) -> Iterator[Self]:
        """Yield histories with fewer lines, those with the fewest first."""
        size = len(self.lines) // 2
        while size:
            for number in range(0, len(self.lines), size):
                yield self.without(number, size)
            size //= 2

    def simpler(self) -> Iterator[Self]:
        """Yield histories of as many lines with smaller numbers."""
        for number, line in enumerate(self.lines):
            for name, value in line.given.items():
                for less in _less(value):
                    changed = replace(line, given={**line.given, name: less})
                    yield replace(self, lines=(*self.lines[:number], changed, *self.lines[number + 1 :]))


def _misspelt(number: int, line: str, why: object) -> Misspelt:
    return why if isinstance(why, Misspelt) else Misspelt(f"line {number}, {line.strip()!r}: {why}")


def _less(value: Value) -> Iterable[Value]:
    if isinstance(value, str) or value <= 1:
        return ()
    return (1, value // 2) if value > 3 else (value - 1,)


def _seconds(text: str) -> float:
    found = float(text)
    if not 0 <= found <= MOST_SECONDS:
        raise ValueError(f"{text} seconds: give 0 to {MOST_SECONDS:g}")
    return found


def _field(text: str) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{text!r} is not field=value")
    return name, _value(value)


def _value(text: str) -> Value:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
