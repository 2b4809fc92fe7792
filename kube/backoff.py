"""How long to wait after the n-th failure in a row.

Two things bound a pause from outside. A busy server that says when to come back (429, Retry-After) is
believed, up to ten minutes (errors.py). And waiting long for an unreachable server protects nothing:
pauses end at …_AWAY, so that work resumes soon after the server is back, however long it was away (client-go
waits up to 30 s to watch, 1000 s to reconcile). Programs of which there are as many as jobs wait longer for a
server in trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf


@dataclass(frozen=True)
class Backoff:
    """Exponential: first, first × factor, … up to `limit`; jitter 1.0 adds up to one whole delay on top.

    The series starts over once `reset_after` seconds have passed since the last failure.
    """

    first: float
    limit: float
    factor: float = 2.0
    jitter: float = 0.0
    reset_after: float | None = None

    def delay(
        self, failures: int, random: float = 0.0, *, at_least: float = 0.0, at_most: float = inf
    ) -> float:
        """Seconds to wait after `failures` (≥ 1) failures in a row; `random` is in [0, 1).

        `at_most` takes the place of a higher limit; `at_least` is what the server asked for.
        """
        exponent = min(failures - 1, 64)
        limit = min(self.limit, at_most)
        return max(at_least, min(self.first * self.factor**exponent, limit) * (1 + self.jitter * random))


WATCH = Backoff(first=0.8, limit=30.0, jitter=1.0, reset_after=120.0)
"""Between attempts to list or watch."""

RECONCILE = Backoff(first=0.005, limit=1000.0)
"""Between runs of a key that fails."""

REQUEST = Backoff(first=0.1, limit=2.0, jitter=1.0)
"""Between attempts of one request."""

RESUME_WHEN_AWAY = 1.0
"""The longest pause, jitter apart, before a watch is resumed at a server that was away or in trouble."""

LISTED = 4 << 20
"""Bytes a second that a server is asked to list, at the most, while lists fail one after another."""
SHORTEST_BEFORE_LIST = 1.0
BEGIN_WHEN_REFUSED = 5.0
"""The longest pause, jitter apart, before a first list where the server, in trouble, refused to begin one."""

RECONCILE_WHEN_AWAY = 2.0
"""The longest pause of a key whose run failed because the server was unreachable."""

RECONCILE_IN_TROUBLE = 30.0
"""The same where the server said that it was in trouble: with this key, perhaps, and no other."""


def longest_before_list(size: int) -> float:
    """The longest pause, jitter apart, before the objects of `size` bytes together are listed again.

    A list costs the server by its size: 30 s (client-go's) protect it from one of 120 MB. Before a small one
    they would only keep a controller blind.
    """
    return max(SHORTEST_BEFORE_LIST, size / LISTED)


@dataclass(frozen=True)
class Failures:
    """How many failures came in a row, and when the last one was."""

    backoff: Backoff
    count: int = 0
    last: float = 0.0

    def another(
        self, now: float, random: Callable[[], float], *, at_least: float = 0.0, at_most: float = inf
    ) -> tuple[Failures, float]:
        """The count after one more failure, and the seconds to wait."""
        stale = self.backoff.reset_after is not None and now - self.last > self.backoff.reset_after
        count = 1 if stale else self.count + 1
        delay = self.backoff.delay(count, random(), at_least=at_least, at_most=at_most)
        return replace(self, count=count, last=now + delay), delay

    def over(self) -> Failures:
        """The count once all is well again."""
        return replace(self, count=0)
