"""Where a pattern matches, each match in time that is linear in the text: all its ways at once.

A pattern becomes a list of steps; the ways that are open at a character are kept in the order in which a
backtracking engine would try them, each step once. So the first match from the left is found, with the same
preferences, and no text makes it take long. To find all of them may take one look at the rest for each, as on
servers: `a*b|a` looks for the `b` from every `a`.

Assumes patterns that `kube.re2.re2_problem` has nothing against.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

Test = Callable[[str], bool]
Holds = Callable[[str, int], bool]


Reads = Callable[[str], Test]
"""What a pattern for one character says of characters."""


class Word(NamedTuple):
    """A word of a pattern: its kind (escape, set, group, repeat, other), its text, and that for `Reads`."""

    kind: str
    text: str
    letter: str


@dataclass(frozen=True)
class Taken:
    """A step over one character."""

    test: Test


@dataclass(frozen=True)
class Held:
    """A step over nothing, where something holds."""

    holds: Holds


@dataclass(frozen=True)
class Fork:
    """A step to other steps, the preferred one first; they count from here."""

    ways: tuple[int, ...]


Steps = list[Taken | Held | Fork]


def matches_in(steps: Steps, text: str) -> Iterator[tuple[int, int]]:
    """Yield where the pattern matches, from the left, none over another; nothing right behind one is none."""
    start, end = 0, -1
    while start <= len(text) and (found := _first(steps, text, start)) is not None:
        if found != (end, end):
            yield found
        end = found[1]
        start = end + (found[0] == end)


def _first(steps: Steps, text: str, start: int) -> tuple[int, int] | None:
    """The first match that begins at a place or later."""
    found: tuple[int, int] | None = None
    ways: dict[int, int] = {}
    for place in range(start, len(text) + 1):
        if found is None:
            _follow(steps, 0, place, ways, text, place)
        elif not ways:
            break
        beyond: dict[int, int] = {}
        for step, begin in ways.items():
            if step == len(steps):
                found = (begin, place)
                break
            taken = steps[step]
            if isinstance(taken, Taken) and place < len(text) and taken.test(text[place]):
                _follow(steps, step + 1, begin, beyond, text, place + 1)
        ways = beyond
    return found


def _follow(steps: Steps, step: int, begin: int, ways: dict[int, int], text: str, place: int) -> None:
    """Add all steps that can be reached without a character, in order of preference."""
    left, seen = [step], set()
    while left:
        here = left.pop()
        if here in ways or here in seen:
            continue
        seen.add(here)
        taken = steps[here] if here < len(steps) else None
        if isinstance(taken, Fork):
            left += [here + way for way in reversed(taken.ways)]
        elif isinstance(taken, Held):
            left += [here + 1] if taken.holds(text, place) else []
        else:
            ways[here] = begin


def steps_of(words: Iterable[Word], reads: Reads) -> Steps:
    """Return the steps of a pattern."""
    return _Reader(list(words), reads).steps()


class _Reader:
    """Recursive descent over the words of a pattern; each method returns the steps of what it read."""

    def __init__(self, words: list[Word], reads: Reads) -> None:
        self._words = words
        self._reads = reads
        self._next = 0

    def steps(self) -> Steps:
        return self._alternatives(frozenset())

    def _peek(self) -> str:
        return self._words[self._next].text if self._next < len(self._words) else ""

    def _alternatives(self, flags: frozenset[str]) -> Steps:
        found, flags = self._sequence(flags)
        while self._peek() == "|":
            self._next += 1
            other, flags = self._sequence(flags)
            found = _either(found, other)
        return found

    def _sequence(self, flags: frozenset[str]) -> tuple[Steps, frozenset[str]]:
        """What stands between two `|`, and the flags that hold behind it."""
        found: Steps = []
        while self._peek() not in ("", "|", ")"):
            word = self._words[self._next]
            self._next += 1
            if word.kind == "group" and word.text.endswith(")"):
                flags = _flags(word.text, flags)
                continue
            found += self._repeated(self._atom(word, flags), flags)
        return found, flags

    def _atom(self, word: Word, flags: frozenset[str]) -> Steps:
        if word.kind == "group":
            inner = self._alternatives(_flags(word.text, flags))
            self._next += 1
            return inner
        if holds := _holds(word.text, flags):
            return [Held(holds)]
        return [Taken(_test(word, flags, self._reads))]

    def _repeated(self, steps: Steps, flags: frozenset[str]) -> Steps:
        if self._next == len(self._words) or self._words[self._next].kind != "repeat":
            return steps
        text = self._peek()
        self._next += 1
        lazy = (text.endswith("?") and len(text) > 1) != ("U" in flags)
        least, most = _counts(text)
        found: Steps = []
        for _ in range(least):
            found += steps
        if most is None:
            return found + _star(steps, lazy=lazy)
        tail: Steps = []
        for _ in range(most - least):
            tail = _maybe(steps + tail, lazy=lazy)
        return found + tail


def _counts(text: str) -> tuple[int, int | None]:
    plain = text.rstrip("?") if len(text) > 1 else text
    if plain in _SIGNS:
        return _SIGNS[plain]
    least, comma, most = plain.strip("{}").partition(",")
    return int(least), (int(most) if most else None) if comma else int(least)


_SIGNS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1), "": (0, 1)}


def _either(first: Steps, second: Steps) -> Steps:
    return [Fork((1, len(first) + 2)), *first, Fork((len(second) + 1,)), *second]


def _maybe(steps: Steps, *, lazy: bool) -> Steps:
    ways = (1, len(steps) + 1)
    return [Fork(ways[::-1] if lazy else ways), *steps]


def _star(steps: Steps, *, lazy: bool) -> Steps:
    """Any number of times. It is asked behind each, so that one that takes nothing may be the last."""
    again = (-len(steps), 1)
    return _maybe([*steps, Fork(again[::-1] if lazy else again)], lazy=lazy)


def _flags(group: str, flags: frozenset[str]) -> frozenset[str]:
    """The flags within a group, or behind one that only sets them."""
    match = re.fullmatch(r"\(\?([imsU]*)(?:-([imsU]*))?[:)]", group)
    return flags if match is None else (flags | set(match[1])) - set(match[2] or "")


def _is_word(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter == "_")


def _at_edge(text: str, place: int) -> bool:
    before = place > 0 and _is_word(text[place - 1])
    return before != (place < len(text) and _is_word(text[place]))


def _holds(text: str, flags: frozenset[str]) -> Holds | None:
    """What must hold at a word of a pattern that stands for no character."""
    return _BY_LINES.get(text) if "m" in flags and text in _BY_LINES else _EDGES.get(text)


_EDGES: Final[dict[str, Holds]] = {
    **dict.fromkeys(("^", r"\A"), lambda text, place: place == 0),
    **dict.fromkeys(("$", r"\z"), lambda text, place: place == len(text)),
    r"\b": _at_edge,
    r"\B": lambda text, place: not _at_edge(text, place),
}
_BY_LINES: Final[dict[str, Holds]] = {
    "^": lambda text, place: place == 0 or text[place - 1] == "\n",
    "$": lambda text, place: place == len(text) or text[place] == "\n",
}


def _test(word: Word, flags: frozenset[str], reads: Reads) -> Test:
    """Whether a character is one that a word stands for; each is looked at once."""
    if word.text == ".":
        return (lambda letter: True) if "s" in flags else (lambda letter: letter != "\n")
    return cache(reads(f"(?i:{word.letter})" if "i" in flags else word.letter))
