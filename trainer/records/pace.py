"""The pace of a worker's reports: the first step of a world at once, then a few a second."""

from __future__ import annotations

from typing import Final

EVERY: Final = 0.25  # seconds


class Pace:
    """When one worker reported last; times are those of one clock."""

    def __init__(self) -> None:
        self._said = 0.0
        self._stepped: float | None = None  # end of the last step
        self._stands: float | None = None  # the same, in the world before
        self._first = True  # no step in this world yet

    def enter(self) -> None:
        """Begin another world: its first step is reported at once."""
        self._first = True

    def step(self, now: float, *, at_once: bool = False) -> bool:
        """Take in the end of a step; return whether it is to be reported: the first one, or one `at_once`."""
        first, self._first = self._first, False
        self._stands, self._stepped = (self._stepped if first else None), now
        due = first or at_once or now - self._said >= EVERY
        self._said = now if due else self._said
        return due

    def standstill(self, now: float) -> float | None:
        """Return how long there was no step, if the one that ended is the first of a world."""
        return None if self._stands is None else now - self._stands
