"""Many jobs that begin at once: their pods are written first, and what can wait is written after them.

A job begins from its first pass until each of its nodes has a pod. While more than a few do, statuses that
only say so wait, and disruption budgets: the more jobs begin, the longer, but those of no job for more than
a minute. A job whose pods cannot be made is counted no longer than that, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import Phase
from elasticjob.kube.objects.kinds import Key, Manifest

FEW: Final = 16
"""Jobs that may begin at once without anything waiting."""
EACH: Final = timedelta(milliseconds=20)
"""What one more job adds to the wait: about as long as its pods take."""
SHORTEST: Final = timedelta(seconds=1)
LONGEST: Final = timedelta(minutes=1)

BEGINNING: Final = frozenset({None, Phase.CREATED, Phase.PENDING, Phase.RUNNING})
"""The phases of a job until all its nodes run."""


@dataclass(frozen=True)
class Rush:
    """The jobs that begin, and since when."""

    _begun: dict[Key, datetime] = field(default_factory=dict)

    def saw(self, key: Key, now: datetime, *, begins: bool) -> None:
        """Remember whether a job begins, as its own pass sees it."""
        if begins:
            self._begun.setdefault(key, now)
        else:
            self._begun.pop(key, None)

    def wait(self, created: datetime | None, now: datetime) -> timedelta | None:
        """Return how long what is not urgent of an object may wait; None: not at all."""
        self._forget_before(now - LONGEST)
        if len(self._begun) <= FEW or created is None or not created <= now < created + LONGEST:
            return None
        return min(max(SHORTEST, len(self._begun) * EACH), created + LONGEST - now)

    def _forget_before(self, then: datetime) -> None:
        """Jobs are remembered in the order in which they began."""
        while self._begun and (first := next(iter(self._begun.items())))[1] < then:
            del self._begun[first[0]]


def only_begins(old: Manifest, new: Manifest) -> bool:
    """Whether two statuses of a job tell no more than that it was made, and that its pods begin to run."""
    return {old.get("phase"), new.get("phase")} <= BEGINNING and not new.get("reason")
