"""Everything that is known of a job when its sizes are decided: its samples, and how jobs like it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.facts import JobFacts, Placement, Sample, Stage, Use
from elasticjob.sizing import demand
from elasticjob.sizing.facts import Event, Facts, OomKill, Pace, Past

__all__ = ["Decision", "Event", "History", "OomKill", "Past", "Sample", "Stage", "Use"]


@dataclass(frozen=True)
class Decision:
    """A decision of Brain: its time, what roles got, its ScalePlan (if it has one) and how that ended."""

    at: datetime
    algorithm: str
    counts: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, Resources] = field(default_factory=dict)
    number: int = 0
    plan: str = ""
    outcome: str = ""


@dataclass(frozen=True)
class History:
    """All that is known of a job, oldest first; `past` are the jobs like it, the newest last."""

    uid: str
    name: str
    stage: Stage
    samples: tuple[Sample, ...] = ()
    past: tuple[Past, ...] = ()
    killed: tuple[OomKill, ...] = ()
    planned: tuple[Decision, ...] = ()
    decisions: int = 0
    """How many decisions have been made for it."""

    def facts(
        self, job: JobFacts, placed: Placement, now: datetime, *, settled: bool, judged: int = 0
    ) -> Facts:
        """Return the facts of a decision; `placed` is what should run now."""
        pace = Pace()
        return Facts(
            job=job,
            placed=placed,
            stage=self.stage,
            now=now,
            samples=self.samples,
            settled=settled,
            demand=demand.of_samples(self.samples, pace.point),
            judged=judged,
            past=self.past,
            killed=self.killed,
            decisions=self.decisions,
            pace=pace,
        )

    @property
    def last(self) -> datetime | None:
        """The time of the last decision."""
        return max((planned.at for planned in self.planned), default=None)
