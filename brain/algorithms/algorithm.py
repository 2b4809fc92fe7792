"""The form of a scaling algorithm: a pure function of the history, with its place in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.rpc.brain import StageName
from elasticjob.brain.history import Event, History, Limits


@dataclass(frozen=True)
class Group:
    """The nodes of a role: how many, and what each gets. None and absent resources stay as they are."""

    count: int | None = None
    resource: Resources = NOTHING


@dataclass(frozen=True)
class Proposal:
    """What a job should have. What it does not name stays; `reason` is a sentence with the numbers used."""

    reason: str
    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)


Propose = Callable[[History, Limits, datetime], Proposal | None]


@dataclass(frozen=True)
class Algorithm:
    """A row of the table: who is asked on these events, in these stages, about this role of a job.

    It is asked only about jobs that have the role, and, if it says so, the role `beside` too. Its proposals
    are made to fit the limits (bounds.py), so that it need not keep them itself.
    """

    name: str
    events: frozenset[Event]
    stages: frozenset[StageName]
    role: str
    propose: Propose
    beside: str = ""
