"""What the master keeps about the health of its job."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from elasticjob.api.rpc.nodes import Hang, WorkerState
from elasticjob.master.state.value import Value

KEPT = 16  # findings


class Kind(StrEnum):
    """The kinds of findings."""

    HANG = "Hang"
    LATE = "Late"
    STRAGGLER = "Straggler"
    FAULT_NODE = "FaultNode"
    LOSS = "LossAlarm"
    CHECKPOINT = "CheckpointTrouble"
    CUT_OFF = "CutOff"
    UNFINISHED = "Unfinished"
    HELD_BACK = "HeldBack"


class Told(Value, frozen=True):
    """The last report of a node about its workers, and when it came."""

    at: datetime
    round: int
    workers: tuple[WorkerState, ...] = ()
    stacks: int = 0


class Finding(Value, frozen=True):
    """A verdict about workers or nodes, in a sentence for people."""

    at: datetime
    reason: Kind
    message: str


class Suspect(Value, frozen=True):
    """A worker that has been slow since then, and since that step."""

    since: datetime
    step: int


class Health(Value, frozen=True):
    """Health of the workers in the world of `round`, and the last findings.

    `stepped` is when a worker of it last ended a step. `hang` is in force since `since`; `numbers` counts
    them. `suspects`, and those that were named as `slow` or `late`, are keyed by node/local rank.
    """

    round: int = 0
    stepped: datetime | None = None
    looked: datetime | None = None
    hang: Hang | None = None
    since: datetime | None = None
    numbers: int = 0
    suspects: dict[str, Suspect] = msgspec.field(default_factory=dict)
    slow: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    idle: datetime | None = None  # since when no node has computed
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def without(self, kind: Kind, about: str) -> Health:
        """Return the health without the findings of a kind whose sentence begins so."""
        gone = [f for f in self.findings if f.reason is kind and f.message.startswith(about)]
        return self.but(findings=tuple(f for f in self.findings if f not in gone)) if gone else self

    def found(self, kind: Kind, message: str, at: datetime) -> Health:
        """Return the health with one more finding."""
        return self.but(
            counts={**self.counts, kind: self.counts.get(kind, 0) + 1},
            findings=(*self.findings, Finding(at=at, reason=kind, message=message))[-KEPT:],
        )
