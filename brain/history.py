"""What is known of a job when its sizes are decided: its own samples, and how jobs like it went. Pure values.

Cores and bytes are plain numbers here: they are measurements, which are averaged and fitted. What is
configured, and what is proposed, is typed (Resources).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.rpc.brain import StageName

Stage = StageName


class Event(StrEnum):
    """Why the sizes of a job are looked at."""

    START = "Start"
    """The job begins, or has its first samples."""
    TROUBLE = "Trouble"
    """A parameter server is hot, or the job got slower."""
    OOM = "OutOfMemory"
    """Nodes were killed for memory."""
    IDLE = "Idle"
    """Capacity is left: in the cluster, or in what the job holds."""


@dataclass(frozen=True)
class Use:
    """What a node had (`cores`, `bytes`) and used (`cpu`, `memory`) on average since the sample before."""

    name: str
    role: str
    cpu: float
    memory: int
    cores: float
    bytes: int

    @property
    def cpu_share(self) -> float:
        """Used of configured cores; 0 where these are not known."""
        return self.cpu / self.cores if self.cores else 0.0

    @property
    def memory_share(self) -> float:
        """Used of configured memory; 0 where that is not known."""
        return self.memory / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Sample:
    """A job at one time while all its nodes train: steps and records a second, what each node used, and the
    share of all time so far in which it made steps that count, if that is known."""

    at: datetime
    workers: int
    steps: float
    samples: float
    nodes: tuple[Use, ...] = ()
    goodput: float | None = None

    def of(self, *roles: str) -> tuple[Use, ...]:
        """Return the nodes of some roles."""
        return tuple(node for node in self.nodes if node.role in roles)


@dataclass(frozen=True)
class Killed:
    """A node that was killed for memory, with the memory that it had."""

    name: str
    role: str
    at: datetime
    bytes: int


@dataclass(frozen=True)
class Past:
    """An earlier job like this one: the same scenario (owner, image and script, or user and name)."""

    uid: str
    name: str
    ended: datetime
    completed: bool
    samples: tuple[Sample, ...] = ()
    killed: tuple[Killed, ...] = ()


@dataclass(frozen=True)
class Planned:
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
    """All that is known of a job, oldest first; `past` are the jobs like it, the newest last.

    `counts` and `resources` are what its roles should have now, `nodes` what single nodes have beside that.
    `remaining` is the time that its training has yet to take, if that is known. `settled` says that all nodes
    train at the present size for long enough.
    """

    uid: str
    name: str
    stage: Stage
    samples: tuple[Sample, ...] = ()
    past: tuple[Past, ...] = ()
    killed: tuple[Killed, ...] = ()
    planned: tuple[Planned, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, Resources] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    settled: bool = False
    remaining: timedelta | None = None
    total: timedelta | None = None
    """How long the whole training takes at the present speed, if that is known."""
    decisions: int = 0
    """How many decisions have been made for it."""


@dataclass(frozen=True)
class Role:
    """What may be decided about a role. `count` and `resource` are the user's: where set, they win."""

    least: int = 1
    most: int | None = None
    unit: int = 1
    auto: bool = True
    count: int | None = None
    resource: Resources = NOTHING


@dataclass(frozen=True)
class Limits:
    """The bounds of a decision: the user's by role and for the whole job, and the cluster's.

    `machine` is the largest node of the cluster, `room` how many more nodes of a role would find a place;
    None where that is not known.
    """

    roles: Mapping[str, Role] = field(default_factory=dict)
    total: Resources = NOTHING
    machine: Resources | None = None
    room: Mapping[str, int] | None = None
