"""The state of the check of nodes before they train."""

from __future__ import annotations

from datetime import datetime

import msgspec

from elasticjob.master.state.value import Value


class Outcome(Value, frozen=True):
    """What the payload of a node check measured on one node; `error` is empty if it did not fail."""

    seconds: float
    error: str = ""


class Applicant(Value, frozen=True):
    """A node in a check: where it is reached, its device, and how its payload ran alone."""

    incarnation: str
    address: str
    port: int
    slots: int
    device: str
    since: datetime
    alone: Outcome


class Finding(Value, frozen=True):
    """The result of the check of one incarnation of a node."""

    incarnation: str
    excluded: bool = False
    sentence: str = ""


class Session(Value, frozen=True):
    """Nodes that are checked together: the groups of the present turn, and the results of all turns."""

    turn: int
    until: datetime
    members: dict[str, Applicant]
    groups: tuple[tuple[str, ...], ...]
    results: dict[str, Outcome] = msgspec.field(default_factory=dict)
    past: tuple[dict[str, Outcome], ...] = ()


class Check(Value, frozen=True):
    """The check of nodes before they train: a rendezvous of its own.

    `turn` counts the turns of all sessions. `references` are median times of good nodes, by device and part.
    `hopeless` is why no node can train, also not on another machine.
    """

    turn: int = 0
    waiting: dict[str, Applicant] = msgspec.field(default_factory=dict)
    session: Session | None = None
    findings: dict[str, Finding] = msgspec.field(default_factory=dict)
    references: dict[str, float] = msgspec.field(default_factory=dict)
    hopeless: str = ""
