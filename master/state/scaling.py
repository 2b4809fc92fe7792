"""What the master knows and remembers about the size of its job. It is part of the snapshot."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from elasticjob.api.v1alpha1.common import PS
from elasticjob.master.state.value import Value

KEPT = 5
"""Records that are kept of each number of nodes."""


class Stage(StrEnum):
    """How far the sizing of a job is: each question moves on, and RUNNING stays."""

    CREATE = "Create"
    WORKER_INITIAL = "WorkerInitial"
    PS_INITIAL = "PSInitial"
    RUNNING = "Running"


class Mode(StrEnum):
    """Who decides: nobody, the job's own statistics, or Brain."""

    MANUAL = "manual"
    SINGLE_JOB = "single-job"
    CLUSTER = "cluster"


class Pace(Value, frozen=True):
    """How often the size of a job is looked at. Tests and the simulator shorten these."""

    record: timedelta = timedelta(seconds=5)  # between two records
    ask: timedelta = timedelta(seconds=30)  # between two questions
    plan: timedelta = timedelta(seconds=60)  # between two plans
    plan_ps: timedelta = timedelta(seconds=600)  # between two plans for the number of parameter servers
    settle: timedelta = timedelta(seconds=30)  # all nodes train at one size, before its records count
    retry: timedelta = timedelta(
        seconds=1800
    )  # a size that did not pay is not tried again before, and longer
    surplus: timedelta = timedelta(seconds=120)  # a node that a growth added pends for so long: it goes
    pending: timedelta = timedelta(seconds=900)  # a node pends for so long: it gets less
    restore: timedelta = timedelta(seconds=1800)  # after which it may get back what it should have
    shrink: timedelta = timedelta(seconds=2400)  # without more memory than ever before: the rest is taken
    point: timedelta = timedelta(seconds=60)  # between two points of a curve of memory
    horizon: timedelta = timedelta(seconds=900)  # a limit that memory will reach so soon is raised
    hold: timedelta = timedelta(seconds=300)  # after a growth that found no machines, and longer each time

    def times(self, factor: float) -> Pace:
        """Return all times multiplied, for trials and tests."""
        return Pace(**{name: getattr(self, name) * factor for name in self.__struct_fields__})


class Role(Value, frozen=True):
    """What the user says about a role. Resources are quantities by name, as in manifests.

    `count` is None where the optimizer decides; `resource` is what the template asks for.
    """

    count: int | None = None
    least: int = 1
    most: int | None = None
    unit: int = 1
    auto: bool = True
    resource: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def elastic(self) -> bool:
        """Whether the optimizer may choose the number of nodes: a number that the user set stays."""
        return self.auto and self.count is None

    @property
    def smallest(self) -> int:
        """The least number of nodes: a multiple of the unit, and never none."""
        return -(-max(self.least, 1) // self.unit) * self.unit


class Wish(Value, frozen=True):
    """What the user says about sizes: who decides, each role, and the limits of the whole job.

    `mark` tells jobs of one name apart.
    """

    mark: str = ""
    mode: Mode = Mode.MANUAL
    strategy: str = ""
    roles: dict[str, Role] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def has_servers(self) -> bool:
        """Whether workers train with parameter servers."""
        return PS in self.roles


class Placed(Value, frozen=True):
    """What should run now, as the JobResource says: sizes, resources of roles, and exceptions of nodes.

    `begun` says that there is a plan for the start; `number` and `planned` are those of the newest plan of
    any master of this job, which may be newer than the snapshot. `killed` are pods that were out of memory,
    as the operator's plans for them say.
    """

    sizes: dict[str, int] = msgspec.field(default_factory=dict)
    resources: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    open: tuple[str, ...] = ()  # names of plans that are not finished
    room: dict[str, int] | None = None  # more nodes of each role that would fit now; None: not known
    machine: dict[str, str] | None = None  # the most that one node could get now; None: not known
    begun: bool = False
    number: int = 0
    planned: datetime | None = None
    servers: tuple[int, ...] | None = None  # the places of parameter servers; None: not known
    killed: tuple[str, ...] = ()


class Use(Value, frozen=True):
    """What a node had and used: cores as floats, memory in bytes; 0 where it is not known."""

    name: str
    role: str
    cpu: float = 0.0  # cores used, lately
    memory: int = 0  # bytes used
    cores: float = 0.0  # that it is given
    bytes: int = 0


class Record(Value, frozen=True):
    """The job at one time while all its nodes train: speed in steps and records a second, and their use."""

    at: datetime
    nodes: tuple[Use, ...]
    workers: int
    steps: float = 0.0
    samples: float = 0.0


class Point(Value, frozen=True):
    """The most bytes that a node of a role used at a time."""

    at: datetime
    memory: int


class Demand(Value, frozen=True):
    """What the nodes of a role have needed: the most of any one node.

    `cores` is the most that was ever used; `sated` says that it was less than what was there, so that more
    cores would not be used. `peak` is the most memory, reached at `risen`; a node that was given more memory
    counts as having needed all that it had before. `curve` is a point a minute, oldest first.
    """

    cores: float = 0.0
    sated: bool = False
    peak: int = 0
    risen: datetime | None = None
    given: int = 0  # bytes, at the newest record
    curve: tuple[Point, ...] = ()

    def moved(self, gap: timedelta) -> Demand:
        """Return it with its times moved by `gap`."""
        curve = tuple(point.but(at=point.at + gap) for point in self.curve)
        return self.but(curve=curve, risen=self.risen and self.risen + gap)


class Scaling(Value, frozen=True):
    """All that is remembered about the size of the job.

    `judged` is the number of workers whose speed has been compared with that of fewer. `held` is until when
    the job may not grow, since nodes that were added found no machine, `holds` times in a row.
    """

    placed: Placed = Placed()
    stage: Stage = Stage.CREATE
    records: tuple[Record, ...] = ()
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
    recovered: tuple[str, ...] = ()  # pods of `Placed.killed` about which the optimizer was asked
    echo: str = ""  # of the last plan and of what ran before it
    reason: str = ""  # of the last plan, or why there was none

    def moved(self, gap: timedelta) -> Scaling:
        """Return it with its times moved by `gap`: the clock of a new master may differ by hours."""
        records = tuple(record.but(at=record.at + gap) for record in self.records)
        cuts = {name: at + gap for name, at in self.cuts.items()}
        demand = {role: each.moved(gap) for role, each in self.demand.items()}
        times = {name: getattr(self, name) for name in ("since", "asked", "planned", "planned_ps", "held")}
        later = {name: at + gap for name, at in times.items() if at}
        return self.but(records=records, cuts=cuts, demand=demand, **later)


def key(job: str, mark: str, number: int) -> str:
    """Return the name of a job's plan: of the first (0) and of each later one. `mark` is that of the job."""
    return f"{job[:40]}-start-{mark}" if number == 0 else f"{job[:40]}-auto-{mark}-{number}"
