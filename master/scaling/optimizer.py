"""The three questions that an optimizer answers.

`LocalOptimizer` (local.py) answers from the job's own records and is pure; `BrainOptimizer` (brain.py) asks
the Brain service. Whatever answers, `stages.py` bounds the answer by what the user said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from elasticjob.api.resources import Resources
from elasticjob.master.scaling.plan import ResourcePlan
from elasticjob.master.state.scaling import Demand, Pace, Placed, Record, Stage, Wish


@dataclass(frozen=True)
class Waiting:
    """A node whose pod waits for a machine, and what it asks for."""

    name: str
    role: str
    since: datetime
    resource: Resources


@dataclass(frozen=True)
class Question:
    """All that an answer rests on: the stage, the user's wish, what runs, and the records, oldest first.

    `settled` says that all nodes train at the size of the newest record for long enough, and that the last
    plan is old enough, so that numbers of nodes may change; `servers_due` the same for parameter servers.
    `waiting` are nodes without a machine, `cuts` those that got less because they waited, and since when.
    `killed` are pods that were out of memory since the last question; `judged` and `held`: see `Scaling`.
    """

    job: str
    stage: Stage
    wish: Wish
    placed: Placed
    records: tuple[Record, ...]
    now: datetime
    demand: Mapping[str, Demand] = field(default_factory=dict)
    judged: int = 0
    held: datetime | None = None
    settled: bool = True
    servers_due: bool = True
    waiting: tuple[Waiting, ...] = ()
    cuts: Mapping[str, datetime] = field(default_factory=dict)
    killed: tuple[str, ...] = ()
    pace: Pace = field(default_factory=Pace)

    def count(self, role: str) -> int:
        """Return how many nodes a role should have now; 0 while that is not decided."""
        return self.placed.sizes.get(role, self.wish.roles[role].count or 0)

    def resource(self, role: str) -> Resources:
        """Return what each node of a role should get now, but for exceptions."""
        placed = self.placed.resources.get(role)
        return Resources.parse(self.wish.roles[role].resource) | Resources.parse(placed)

    def resource_of(self, role: str, node: str) -> Resources:
        """Return what a node should get now."""
        return self.resource(role) | Resources.parse(self.placed.nodes.get(node))

    def role_of(self, node: str) -> str | None:
        """Return the role of a node, or of a pod of it, by the names that the operator gives."""
        for role in self.wish.roles:
            place = node.removeprefix(f"{self.job}-{role}-")
            if place != node and all(part.isdecimal() for part in place.split("-")):
                return role
        return None

    @property
    def limits(self) -> Resources:
        """What the whole job may have at most."""
        return Resources.parse(self.wish.limits)


class Optimizer(Protocol):
    """Raises OptimizerError if it cannot answer now: another one stands in, and it is asked again later."""

    async def plan(self, question: Question) -> ResourcePlan:
        """Return what the job should have at this stage."""

    async def recovery_plan(self, question: Question, nodes: tuple[str, ...]) -> ResourcePlan:
        """Return what nodes get that were out of memory."""

    async def first_plan(self, question: Question) -> ResourcePlan:
        """Return what a job starts with of which nothing is known."""


class OptimizerError(Exception):
    """No answer; the message says why."""
