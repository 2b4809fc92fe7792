"""Whether a running job needs a look at its sizes, and why. Pure.

The first event that holds is chosen; a decision is followed by a pause, so that its effect is seen first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticjob.api.roles import PS
from elasticjob.api.sizes.facts import Sample
from elasticjob.sizing.facts import Event, Facts
from elasticjob.sizing.measures import TRAIN, newest, shares
from elasticjob.sizing.rules import memory
from elasticjob.sizing.rules.beside import is_slower
from elasticjob.sizing.thresholds import CROWDED, HOT


@dataclass(frozen=True)
class Pace:
    """How long a job trains at one size before that is judged, and the pauses after a decision."""

    settle: timedelta = timedelta(seconds=60)
    trouble: timedelta = timedelta(seconds=60)
    idle: timedelta = timedelta(seconds=300)

    def times(self, factor: float) -> Pace:
        """Return all times as a share of these: less for trials."""
        return Pace(self.settle * factor, self.trouble * factor, self.idle * factor)


def event_of(facts: Facts, last: datetime | None, pace: Pace) -> Event | None:
    """Return why a running job should be looked at, None if it need not be now. `last`: the last decision."""
    since = facts.now - last if last else None
    if not facts.samples:
        return None
    if (since is None or since >= pace.trouble) and _is_in_trouble(facts):
        return Event.TROUBLE
    if facts.settled and (since is None or since >= pace.idle):
        return Event.IDLE
    return None


def _is_in_trouble(facts: Facts) -> bool:
    samples = newest(facts.samples)
    hot = any(share > HOT for share in shares(samples, PS).values())
    crowded = any(use.memory_share > CROWDED for use in samples[-1].of(PS))
    return hot or crowded or memory.runs_out(facts) or (facts.settled and is_slower(facts.samples))


def is_steady(samples: tuple[Sample, ...], counts: Mapping[str, int], pace: Pace) -> bool:
    """Whether the job has trained at its present size for long enough: all workers that there should be."""
    if not samples:
        return False
    wanted = sum(counts.get(role, 0) for role in TRAIN)
    return (not wanted or samples[-1].workers == wanted) and _at_this_size(samples) >= pace.settle


def size_of_verdict(samples: tuple[Sample, ...], pace: Pace) -> int:
    """Return the present number of workers once its speed has been compared with that of fewer, else 0."""
    return samples[-1].workers if samples and _at_this_size(samples) >= pace.settle + pace.idle else 0


def _at_this_size(samples: tuple[Sample, ...]) -> timedelta:
    """How long the job has trained with as many workers as in the last sample, without a break."""
    last = samples[-1]
    same = [sample for sample in samples if sample.workers == last.workers]
    began = next((s.at for s in reversed(samples) if s.workers != last.workers), None)
    return last.at - min(sample.at for sample in same if began is None or sample.at > began)
