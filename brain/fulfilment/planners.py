"""The planners that share a cluster: one row each. A new one is a pure function and its line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from elasticjob.brain.fulfilment import goodput, offers, planner, state
from elasticjob.brain.fulfilment.offers import Candidate
from elasticjob.brain.fulfilment.state import Cluster, Plan


class Share(StrEnum):
    """By what Brain shares a cluster among the jobs in cluster mode whose workers have a range."""

    NONE = "none"
    """It does not: each job has what it gains by."""
    FULFILMENT = "fulfilment"
    """Room goes to the job that has least of its range."""
    GOODPUT = "goodput"
    """Room goes to where it speeds up the training most, by the speeds that were measured, and fairly."""


class Planner(Protocol):
    """Decides the sizes of all jobs."""

    def __call__(self, cluster: Cluster, jobs: Sequence[Candidate], settle: timedelta, now: datetime) -> Plan:
        """Return what changes, and who waits; no job grows within `settle` of its last change."""
        ...


@dataclass(frozen=True)
class Row:
    """A planner, and whether it reads the speeds of jobs."""

    name: Share
    plan: Planner
    speeds: bool


RESTART: Final = timedelta(seconds=1)
"""How long a job stands still when its size changes: 0.1 s in benchmarks/training, more on a busy cluster."""
KEEP: Final = 0.02
"""What a change has to bring at least, of the speed of a fair share: measured speeds are not exact."""


def by_fulfilment(cluster: Cluster, jobs: Sequence[Candidate], settle: timedelta, now: datetime) -> Plan:
    """Return the plan of the fulfilment planner."""
    return planner.plan(cluster, [each.job for each in jobs], state.Options(settle=settle), now)


def by_goodput(cluster: Cluster, jobs: Sequence[Candidate], settle: timedelta, now: datetime) -> Plan:
    """Return the plan of the goodput planner."""
    return goodput.plan(cluster, jobs, offers.Options(settle=settle, restart=RESTART, keep=KEEP), now)


PLANNERS: Final[Mapping[Share, Row]] = {
    row.name: row
    for row in (
        Row(Share.FULFILMENT, by_fulfilment, speeds=False),
        Row(Share.GOODPUT, by_goodput, speeds=True),
    )
}
