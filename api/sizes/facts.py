"""The facts on which sizes rest. These values are also the messages between masters and Brain.

Cores and bytes are plain numbers here: they are measurements, which are averaged and fitted. Settings are
quantities, as in manifests.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from elasticjob.api.numbers import Count, Measured, Nodes
from elasticjob.api.resources import Resources
from elasticjob.api.roles import PS
from elasticjob.api.sizes.role import Fact, Name, Quantities, Role, RoleName

MOST_NODES = 4096
MOST_ROLES = 64
Counts = Annotated[dict[RoleName, Count], msgspec.Meta(max_length=MOST_ROLES)]


_PLAIN = str.maketrans("", "", "-_ ")


class Mode(StrEnum):
    """The decider of sizes: the user alone, the job's master, or Brain."""

    MANUAL = "manual"
    SINGLE_JOB = "single-job"
    CLUSTER = "cluster"

    @classmethod
    def _missing_(cls, value: object) -> Mode | None:
        """Read the spellings of older manifests, such as single_job."""
        word = str(value).lower().translate(_PLAIN)
        return next((mode for mode in cls if mode.translate(_PLAIN) == word), None)


class Stage(StrEnum):
    """How far the sizing of a job is: each question moves on, and RUNNING stays."""

    CREATE = "Create"
    WORKER_INITIAL = "WorkerInitial"
    PS_INITIAL = "PSInitial"
    RUNNING = "Running"


class JobFacts(Fact, frozen=True, kw_only=True):
    """The identity of a job, and its user's settings of sizes."""

    namespace: Name = ""
    name: Name = ""
    uid: Name = ""
    strategy: RoleName = ""
    mode: Mode = Mode.MANUAL
    roles: Annotated[dict[RoleName, Role], msgspec.Meta(max_length=MOST_ROLES)] = msgspec.field(
        default_factory=dict
    )
    limits: Quantities = msgspec.field(default_factory=dict)

    @property
    def has_servers(self) -> bool:
        """Whether workers train with parameter servers."""
        return PS in self.roles

    @property
    def mark(self) -> str:
        """A short text that tells jobs of one name apart."""
        return hashlib.sha256(self.uid.encode()).hexdigest()[:8]

    @property
    def most(self) -> Resources:
        """The limits of the whole job."""
        return Resources.parse(self.limits)


class Use(Fact, frozen=True):
    """Used and configured resources of a node: cores and bytes, averaged since the sample before; 0: unknown.

    `peak` is the most memory that the node has used in its life.
    """

    name: Name
    role: RoleName
    cpu: Measured = 0.0
    memory: Count = 0
    cores: Measured = 0.0
    bytes: Count = 0
    peak: Count = 0

    @property
    def cpu_share(self) -> float:
        """Used of configured cores; 0 where these are not known."""
        return self.cpu / self.cores if self.cores else 0.0

    @property
    def memory_share(self) -> float:
        """Used of configured memory; 0 where that is not known."""
        return self.memory / self.bytes if self.bytes else 0.0


class Sample(Fact, frozen=True):
    """A job at one time while all its nodes train: steps and records a second, and the use of each node.

    `goodput` is the share of all time so far in which it made steps that count; None if unknown.
    """

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    workers: Nodes
    steps: Measured = 0.0
    samples: Measured = 0.0
    nodes: Annotated[tuple[Use, ...], msgspec.Meta(max_length=MOST_NODES)] = ()
    goodput: Measured | None = None

    def of(self, *roles: str) -> tuple[Use, ...]:
        """Return the nodes of some roles."""
        return tuple(node for node in self.nodes if node.role in roles)


class Placement(Fact, frozen=True, kw_only=True):
    """Desired sizes and resources, as the JobResource has them, and the capacity left in the cluster.

    `room` is how many more nodes of a role find a machine, `machine` the most that one node could get; None
    if unknown.
    """

    sizes: Counts = msgspec.field(default_factory=dict)
    resources: Annotated[dict[RoleName, Quantities], msgspec.Meta(max_length=MOST_ROLES)] = msgspec.field(
        default_factory=dict
    )
    nodes: Annotated[dict[Name, Quantities], msgspec.Meta(max_length=MOST_NODES)] = msgspec.field(
        default_factory=dict
    )
    room: Counts | None = None
    machine: Quantities | None = None
