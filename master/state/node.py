"""One node of a job: its pod, its agent, and what the rules ask about it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from elasticjob.api.rpc.nodes import Kept, Usage
from elasticjob.api.rpc.rendezvous import Recovery
from elasticjob.master.state.condition import Alike, WorkerReport
from elasticjob.master.state.value import Value


class Kind(NamedTuple):
    """All that the rules ask about a node, but for its name."""

    role: str
    failures: int
    alive: bool
    started: bool
    completed: bool
    finished: bool
    joined: bool
    out: bool  # it leaves or has ended
    holds: int  # the round whose model state it holds, 0 if none
    costly: bool  # it has joined with a script that a change of the world restarts
    pends: bool = False  # its pod waits for a machine
    spoilt: bool = False  # worlds failed when it came


class Phase(StrEnum):
    """The phase of a node, from its pod or, without pods, from its agent."""

    INITIAL = "Initial"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"


ENDS = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.DELETED})
"""The terminal phases of a pod."""


class Spoilt(Value, frozen=True):
    """Worlds of one size that failed before any step when a node came: the points, and the last of them."""

    points: int
    round: int
    at: datetime


class Waiting(Value, frozen=True):
    """A waiting node: its slots, since when, and when the join expires unless repeated."""

    slots: int
    address: str
    port: int
    recovery: Recovery
    since: datetime
    until: datetime
    files: int = 0


class Node(Value, frozen=True):
    """One place of the job, and its present incarnation.

    `round` is the world whose model state the node holds, 0 if none. `beat` is the last heartbeat of its
    agent, None without an agent. `elastic`: its script goes from world to world without a restart, as it has
    told. `left` is the last round that it left while alive. `pod` is the name of this incarnation's pod, as
    its agent reports it; `phase`, `uid` (of the newest pod) and `pods` come from the API server. `failures`
    counts incarnations that failed for good, the last one at `failed_at`; `reported` is the last failure
    counted (round, local rank). `excluded` says why it enters no world any more.
    """

    name: str
    role: str = "worker"
    index: int = 0
    phase: Phase = Phase.INITIAL
    pod: str = ""
    pods: tuple[str, ...] = ()
    uid: str = ""
    leaving: bool = False
    grace: float | None = None  # seconds that the deletion of its pod gives it
    incarnation: str = ""
    retired: tuple[str, ...] = ()
    beat: datetime | None = None
    round: int = 0
    left: int = 0
    joined: Waiting | None = None
    elastic: bool = False
    finished: bool = False
    with_a_leave: bool = False  # it finished while a member was leaving: perhaps its world, not the training
    failed: bool = False
    failures: int = 0
    failure: str = ""
    reported: tuple[int, int] | None = None
    number: int = 0  # failures that its agent has reported
    restarts: int = 0  # how often its agent has started its workers again
    alike: Alike | None = None
    killed: int = 0  # the last round in which a worker of it was killed from outside
    spoilt: dict[str, Spoilt] = msgspec.field(default_factory=dict)  # by the number of nodes of those worlds
    usage: Usage | None = None
    peak: int | None = None  # the most memory that was reported here, in bytes; None: unknown
    kept: Kept | None = None
    told: WorkerReport | None = None
    failed_at: datetime | None = None
    excluded: str = ""
    resource: dict[str, str] = msgspec.field(default_factory=dict)  # requests of its training container
    pends: datetime | None = None  # since when its pod waits for a machine; None: it does not

    def using(self, usage: Usage) -> Node:
        """Return the node with what it uses now."""
        most = max((each for each in (self.peak, usage.peak) if each is not None), default=None)
        return self.but(usage=usage, peak=most)

    @property
    def ended(self) -> bool:
        """Whether this incarnation takes no part any more."""
        return self.finished or self.failed or bool(self.excluded) or self.phase in ENDS

    @property
    def has_succeeded(self) -> bool:
        """Whether the node succeeded, as its agent or its pod reports; a deleted pod does not count.

        The pod counts because a script may run without our agent, and the agent's last request may be lost.
        """
        return self.finished or (self.phase is Phase.SUCCEEDED and not self.leaving)

    @property
    def alive(self) -> bool:
        """Whether an agent is connected, or a pod is Running and not being deleted."""
        return not (self.leaving or self.ended) and (self.beat is not None or self.phase is Phase.RUNNING)

    @property
    def started(self) -> bool:
        """Whether its pod runs or has succeeded, or an agent is connected."""
        return self.has_succeeded or self.beat is not None or self.phase is Phase.RUNNING

    @property
    def place(self) -> tuple[str, int, str]:
        """Sort key of nodes of equal age."""
        return self.role, self.index, self.name

    @property
    def holds(self) -> int:
        """The round whose model state the node holds, 0 if none.

        A script that a change of the world restarts has nothing of a world that failed as the node came.
        """
        is_empty = not self.elastic and any(each.round == self.round for each in self.spoilt.values())
        return 0 if is_empty else self.round

    @property
    def kind(self) -> Kind:
        """What the rules ask about the node: equal kinds are counted together (see `Roster`)."""
        ended, running = self.ended, self.phase is Phase.RUNNING
        out, agent = self.leaving or ended, self.beat is not None
        return Kind(
            role=self.role,
            failures=self.failures,
            alive=not out and (agent or running),
            started=agent or running or self.has_succeeded,
            completed=self.has_succeeded,
            finished=self.finished,
            joined=self.joined is not None,
            out=out,
            holds=self.holds,
            costly=self.joined is not None and self.joined.recovery is Recovery.RESTART,
            pends=self.pends is not None,
            spoilt=bool(self.spoilt),
        )
