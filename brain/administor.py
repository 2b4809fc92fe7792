"""Whether a running job needs a look at its sizes, and why. Pure.

The first event that holds is chosen; a decision is followed by a pause, so that its effect is seen first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticjob.api.v1alpha1.common import PS
from elasticjob.brain.algorithms.servers import FULL, HOT
from elasticjob.brain.algorithms.uses import TRAIN, newest, shares
from elasticjob.brain.algorithms.workers import is_slower
from elasticjob.brain.history import Event, History


@dataclass(frozen=True)
class Pace:
    """How long a job trains at one size before that is judged, and the pauses after a decision."""

    settle: timedelta = timedelta(seconds=60)
    trouble: timedelta = timedelta(seconds=60)
    idle: timedelta = timedelta(seconds=300)

    def times(self, factor: float) -> Pace:
        """Return all times as a share of these: less for trials."""
        return Pace(self.settle * factor, self.trouble * factor, self.idle * factor)


def event_of(history: History, now: datetime, pace: Pace) -> Event | None:
    """Return why a running job should be looked at, None if it need not be now."""
    last = max((planned.at for planned in history.planned), default=None)
    since = now - last if last else None
    if any(last is None or node.at > last for node in history.killed):
        return Event.OOM
    if not history.samples:
        return None
    if (since is None or since >= pace.trouble) and _is_in_trouble(history):
        return Event.TROUBLE
    if history.settled and (since is None or since >= pace.idle):
        return Event.IDLE
    return None


def _is_in_trouble(history: History) -> bool:
    samples = newest(history.samples)
    hot = any(share > HOT for share in shares(samples, PS).values())
    crowded = any(use.memory_share > FULL for use in samples[-1].of(PS))
    return hot or crowded or (history.settled and is_slower(history.samples))


def is_settled(history: History, pace: Pace) -> bool:
    """Whether the job has trained at its present size for long enough: all workers that there should be."""
    if not history.samples:
        return False
    last = history.samples[-1]
    wanted = sum(history.counts.get(role, 0) for role in TRAIN)
    if wanted and last.workers != wanted:
        return False
    same = [sample for sample in history.samples if sample.workers == last.workers]
    began = next((s.at for s in reversed(history.samples) if s.workers != last.workers), None)
    since = min(sample.at for sample in same if began is None or sample.at > began)
    return last.at - since >= pace.settle
