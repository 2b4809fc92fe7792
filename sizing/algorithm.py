"""The form of a scaling algorithm: a pure function of the facts, with its place in the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from elasticjob.api.sizes.change import Change
from elasticjob.api.sizes.facts import Stage
from elasticjob.sizing.facts import Event, Facts

Propose = Callable[[Facts], Change | None]


class Decider(StrEnum):
    """The programs that decide about sizes."""

    MASTER = "master"
    """The job's master: it knows the job's own samples."""
    BRAIN = "brain"
    """Brain: it knows the history of all jobs, too."""


@dataclass(frozen=True)
class Algorithm:
    """A row of the table: the events, stages, role and deciders for which it is asked.

    It is asked only about jobs that have the role ("": any), and, if it says so, the role `beside` too, or
    lack the role `without`. The proposal of one that is `alone` is the whole answer. Proposals are made to
    fit (bounds.py), so that it need not keep bounds itself. An empty change says why nothing changes; None:
    the algorithm does not apply.
    """

    name: str
    events: frozenset[Event]
    stages: frozenset[Stage]
    propose: Propose
    role: str = ""
    beside: str = ""
    without: str = ""
    by: frozenset[Decider] = frozenset(Decider)
    alone: bool = False

    def is_asked(self, event: Event, facts: Facts, by: Decider) -> bool:
        """Whether the row is for these facts."""
        there = all(role in facts.roles for role in (self.role, self.beside) if role)
        fits = there and self.without not in facts.roles
        return fits and by in self.by and event in self.events and facts.stage in self.stages
