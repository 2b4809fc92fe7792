"""What the master knows and remembers about the size of its job. It is part of the snapshot."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from elasticjob.master.value import Value

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


class Wish(Value, frozen=True):
    """What the user says about sizes: who decides, each role, and the limits of the whole job."""

    mode: Mode = Mode.MANUAL
    strategy: str = ""
    roles: dict[str, Role] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class Placed(Value, frozen=True):
    """What should run now, as the JobResource says: sizes, resources of roles, and exceptions of nodes."""

    sizes: dict[str, int] = msgspec.field(default_factory=dict)
    resources: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    open: tuple[str, ...] = ()  # names of plans that are not finished
    room: dict[str, int] | None = None  # more nodes of each role that would fit now; None: not known


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


class Scaling(Value, frozen=True):
    """All that is remembered about the size of the job."""

    placed: Placed = Placed()
    stage: Stage = Stage.CREATE
    records: tuple[Record, ...] = ()
    planned: datetime | None = None  # when the last plan was made
    planned_ps: datetime | None = None
    numbers: int = 0  # plans made; the number of the last one
    reason: str = ""  # of the last plan, or why there was none
