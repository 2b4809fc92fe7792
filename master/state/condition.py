"""What the master keeps about the health of its job."""

from __future__ import annotations

from collections.abc import Container
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
    FAILS_AT_START = "FailsAtStart"
    WORKER_FAILED = "WorkerFailed"


class WorkerReport(Value, frozen=True):
    """The last report of a node about its workers, and when it came."""

    at: datetime
    round: int
    workers: tuple[WorkerState, ...] = ()
    stacks: int = 0


class Finding(Value, frozen=True):
    """A verdict about workers or nodes, in a sentence for people; it is open until it is so no more.

    `about` names the worker or the node, empty for an event, which is not closed. One that is counted was so
    `count` times, at last at `last`, and has the message of the first time.
    """

    at: datetime
    reason: Kind
    message: str
    about: str = ""
    until: datetime | None = None
    count: int = 1
    last: datetime | None = None

    @property
    def seconds(self) -> float:
        """How long it was so; 0 while it is."""
        return (self.until - self.at).total_seconds() if self.until else 0.0


class Error(Value, frozen=True):
    """The error number `number` of a job: workers raised it, without any progress, since the step `mark`.

    `nodes` of them had two starts that ended by it.
    """

    number: int = 0
    way: str = ""
    message: str = ""
    mark: tuple[int, int] = (0, 0)
    nodes: int = 0


class Alike(Value, frozen=True):
    """How many starts of a node ended by the error number `error`, at last `start`, and of which workers."""

    error: int
    start: str = ""
    starts: int = 0
    workers: tuple[int, ...] = ()
    alone: bool = False  # the node has a single worker


class Suspect(Value, frozen=True):
    """A worker that has been slow since then, and since that step, and its usual time before."""

    since: datetime
    step: int
    usual: float = 0.0


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

    def add(self, kind: Kind, message: str, at: datetime, about: str = "") -> Health:
        """Return the health with one more finding, in the place of the last one of that kind about the same.

        Each hang is kept. Where there are too many, those go first that are closed.
        """
        kept = [
            each
            for each in self.findings
            if not about or kind is Kind.HANG or (each.reason, each.about) != (kind, about)
        ]
        new = Finding(at=at, reason=kind, message=message, about=about)
        for gone in sorted(kept, key=lambda each: each.until is None)[: max(0, len(kept) + 1 - KEPT)]:
            kept.remove(gone)
        counts = {**self.counts, kind: self.counts.get(kind, 0) + 1}
        return self.but(counts=counts, findings=(*kept, new))

    def count(self, kind: Kind, message: str, at: datetime, about: str) -> Health:
        """Return the health with an open finding counted once more, or a new one."""
        same = (
            each
            for each in self.findings
            if (each.reason, each.about) == (kind, about) and each.until is None
        )
        if (known := next(same, None)) is None:
            return self.add(kind, message, at, about)
        again = known.but(count=known.count + 1, last=at)
        findings = tuple(again if each is known else each for each in self.findings)
        return self.but(counts={**self.counts, kind: self.counts.get(kind, 0) + 1}, findings=findings)

    def close(self, kind: Kind, at: datetime, but: Container[str] = ()) -> Health:
        """Return the health with the open findings of a kind closed, but those about some."""
        findings = tuple(
            each.but(until=at)
            if each.reason is kind and each.about and each.until is None and each.about not in but
            else each
            for each in self.findings
        )
        return self if findings == self.findings else self.but(findings=findings)
