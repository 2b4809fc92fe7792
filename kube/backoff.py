"""How long to wait after the n-th failure in a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


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

    def delay(self, failures: int, random: float = 0.0) -> float:
        """Seconds to wait after `failures` (≥ 1) failures in a row; `random` is in [0, 1)."""
        exponent = min(failures - 1, 64)
        return min(self.first * self.factor**exponent, self.limit) * (1 + self.jitter * random)


WATCH = Backoff(first=0.8, limit=30.0, jitter=1.0, reset_after=120.0)
"""Between attempts to list or watch."""

RECONCILE = Backoff(first=0.005, limit=1000.0)
"""Between runs of a key that fails."""

REQUEST = Backoff(first=0.1, limit=2.0, jitter=1.0)
"""Between attempts of one request."""


@dataclass(frozen=True)
class Failures:
    """How many failures came in a row, and when the last one was."""

    backoff: Backoff
    count: int = 0
    last: float = 0.0

    def another(self, now: float, random: Callable[[], float]) -> tuple[Failures, float]:
        """The count after one more failure, and the seconds to wait."""
        stale = self.backoff.reset_after is not None and now - self.last > self.backoff.reset_after
        count = 1 if stale else self.count + 1
        delay = self.backoff.delay(count, random())
        return replace(self, count=count, last=now + delay), delay
