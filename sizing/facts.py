"""Everything on which a decision about sizes rests, as one frozen value. No rule reads anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

import msgspec

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Group
from elasticjob.api.sizes.facts import JobFacts, Placement, Sample, Stage
from elasticjob.api.sizes.need import Need, Nodes
from elasticjob.api.sizes.role import Role
from elasticjob.sizing.demand import Demand


class Pace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class Event(StrEnum):
    """Why the sizes of a job are looked at."""

    START = "Start"
    """The job begins, or has its first samples."""
    TROUBLE = "Trouble"
    """A parameter server is hot, memory runs out, or the job got slower."""
    IDLE = "Idle"
    """Capacity is left: in the cluster, or in what the job holds."""


@dataclass(frozen=True)
class Waiting:
    """A node whose pod waits for a machine, and its requests."""

    name: str
    role: str
    since: datetime
    resource: Resources


@dataclass(frozen=True)
class OomKill:
    """A node that was killed for memory, with the memory that it had."""

    name: str
    role: str
    at: datetime
    bytes: int


@dataclass(frozen=True)
class Past:
    """An earlier job like this one: of its namespace, with the same image and script, or the same name."""

    uid: str
    name: str
    ended: datetime
    completed: bool
    samples: tuple[Sample, ...] = ()
    killed: tuple[OomKill, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The facts of one decision: settings, present sizes, samples (oldest first), and what is remembered.

    `settled`: all nodes train at the size of the newest sample for long enough, and the last plan is old
    enough, so that numbers of nodes may change; `servers_due` the same for parameter servers. `demand` is the
    most that nodes of a role have needed. `waiting` are nodes without a machine, `cuts` those that got less
    because they waited, and since when. `judged` is the number of workers whose speed has been compared with
    that of fewer; until `held` the job may not grow. Brain alone knows `past` jobs like it, `killed` nodes,
    how many `decisions` there were, and how long the training takes: the `remaining` time, and the `total`.
    """

    job: JobFacts
    placed: Placement
    stage: Stage
    now: datetime
    samples: tuple[Sample, ...] = ()
    settled: bool = True
    servers_due: bool = True
    demand: Mapping[str, Demand] = field(default_factory=dict)
    waiting: tuple[Waiting, ...] = ()
    cuts: Mapping[str, datetime] = field(default_factory=dict)
    judged: int = 0
    held: datetime | None = None
    past: tuple[Past, ...] = ()
    killed: tuple[OomKill, ...] = ()
    decisions: int = 0
    remaining: timedelta | None = None
    total: timedelta | None = None
    pace: Pace = field(default_factory=Pace)

    @property
    def roles(self) -> Mapping[str, Role]:
        """The user's settings by role."""
        return self.job.roles

    def count(self, role: str) -> int:
        """Return how many nodes a role should have now; 0 while that is not decided."""
        return self.placed.sizes.get(role, self.roles[role].count or 0)

    def resource(self, role: str) -> Resources:
        """Return what each node of a role should get now, but for exceptions."""
        return self.roles[role].template_resources | Resources.parse(self.placed.resources.get(role))

    def resource_of(self, role: str, node: str) -> Resources:
        """Return what a node should get now."""
        return self.resource(role) | Resources.parse(self.placed.nodes.get(node))

    def role_of(self, node: str) -> str | None:
        """Return the role of a node, or of a pod of it, by the names that the operator gives."""
        for role in self.roles:
            place = node.removeprefix(f"{self.job.name}-{role}-")
            if place != node and all(part.isdecimal() for part in place.split("-")):
                return role
        return None

    @property
    def limits(self) -> Resources:
        """The limits of the whole job."""
        return self.job.most

    @cached_property
    def machine(self) -> Resources | None:
        """The most that one node could get now; None if unknown."""
        return None if self.placed.machine is None else Resources.parse(self.placed.machine)

    def need(
        self, groups: Mapping[str, Group] | None = None, nodes: Mapping[str, Resources] | None = None
    ) -> Need:
        """Return what the whole job needs, with changes of roles and nodes."""
        changes, moved = groups or {}, nodes or {}
        return Need({role: self._nodes(role, changes.get(role, Group()), moved) for role in self.roles})

    def _nodes(self, role: str, group: Group, moved: Mapping[str, Resources]) -> Nodes:
        each, around = self.resource(role) | group.resource, Resources.parse(self.roles[role].around)
        own = {n: each | Resources.parse(r) for n, r in self.placed.nodes.items() if self.role_of(n) == role}
        for name, resource in moved.items():
            if self.role_of(name) == role:
                own[name] = own.get(name, each) | resource
        count = group.count if group.count is not None else self.count(role)
        return Nodes(count, each + around, tuple(single + around for single in own.values()))
