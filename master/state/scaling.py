"""What the master knows and remembers about the size of its job. It is part of the snapshot."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from elasticjob.api.sizes.facts import Placement, Sample, Stage
from elasticjob.master.state.value import Value
from elasticjob.sizing.demand import Demand


class Target(Placement, frozen=True, kw_only=True):
    """What should run now, as the JobResource says, and the plans that there are.

    `begun` says that there is a plan for the start; `number` and `planned` are those of the newest plan of
    any master of this job, which may be newer than the snapshot.
    """

    open: tuple[str, ...] = ()  # names of plans that are not finished
    begun: bool = False
    number: int = 0
    planned: datetime | None = None
    servers: tuple[int, ...] | None = None  # the places of parameter servers; None: not known


class Scaling(Value, frozen=True):
    """All that is remembered about the size of the job.

    `judged` is the number of workers whose speed has been compared with that of fewer. `held` is until when
    the job may not grow, since nodes that were added found no machine, `holds` times in a row.
    """

    placed: Target = Target()
    stage: Stage = Stage.CREATE
    records: tuple[Sample, ...] = ()
    since: datetime | None = None  # since when all nodes train at the size of the newest record
    applied: int = 0  # records of shards that were applied at the newest record
    asked: datetime | None = None  # when the last question was answered
    planned: datetime | None = None  # when the last plan was made
    planned_ps: datetime | None = None
    numbers: int = 0  # plans made; the number of the last one
    demand: dict[str, Demand] = msgspec.field(default_factory=dict)
    judged: int = 0
    held: datetime | None = None
    holds: int = 0
    cuts: dict[str, datetime] = msgspec.field(default_factory=dict)  # nodes that got less, since they pended
    echo: str = ""  # of the last plan and of what ran before it
    reason: str = ""  # of the last plan, or why there was none

    def shift(self, gap: timedelta) -> Scaling:
        """Return it with its times moved by `gap`: the clock of a new master may differ by hours."""
        records = tuple(record.but(at=record.at + gap) for record in self.records)
        cuts = {name: at + gap for name, at in self.cuts.items()}
        demand = {role: each.shift(gap) for role, each in self.demand.items()}
        times = {name: getattr(self, name) for name in ("since", "asked", "planned", "planned_ps", "held")}
        later = {name: at + gap for name, at in times.items() if at}
        return self.but(records=records, cuts=cuts, demand=demand, **later)


def key(job: str, mark: str, number: int) -> str:
    """Return the name of a job's plan: of the first (0) and of each later one. `mark` is that of the job."""
    return f"{job[:40]}-start-{mark}" if number == 0 else f"{job[:40]}-auto-{mark}-{number}"
