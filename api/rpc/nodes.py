"""Life of a node: being alive, progress, failures, the end; and what the master asks of it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from elasticjob.api.rpc.message import Count, Empty, Message, Request, Wait


class Order(StrEnum):
    """What the master wants of a node's workers now."""

    TRAIN = "train"  # go on
    REGROUP = "regroup"  # the world of `Orders.round` ends: join the next one (see `Orders.lost`)
    STOP = "stop"  # the job ends: stop the workers, exit


class Orders(Message, frozen=True, kw_only=True):
    """Level, not edge: what is true for this node now. `version` rises whenever the answer changes.

    With TRAIN, `round` is the world that this node is a member of, 0 while it is in none (then `reason`
    says what it waits for). With REGROUP, `round` is the world that ends, and `lost` names the members
    that are gone or whose part of it is broken: if any, collectives of this round are broken (abort them
    at once); if none, the round ends at the next step boundary (somebody joins or leaves as planned).
    Once ordered, a REGROUP is not taken back; it stands until the next world is complete, and is answered
    by a Join with `after` = that round.
    """

    version: int
    order: Order
    round: int
    lost: tuple[str, ...] = ()
    reason: str = ""


class Watch(Request[Orders], frozen=True, kw_only=True):
    """Heartbeat and open line in one: answer when orders are newer than `seen`, at the latest after `wait` s.

    The agent sends it again at once. A connection that is reset while this waits is a lost node at once;
    no Watch for 5 s is a silent one (`wait` is cut to half of that). `round` is the world in which the
    workers of this node train, 0 if in none: with it a new master takes a training world over, and a node
    that was given up for lost is told to REGROUP.
    """

    PATH: ClassVar[str] = "nodes/watch"
    node: str
    role: str
    index: int
    incarnation: str
    pod: str = ""
    seen: Count = 0
    wait: Wait = 2.0
    round: Count = 0


class Progress(Message, frozen=True, kw_only=True):
    """What the training library knows: `step` counts optimizer steps of the whole job since its beginning.

    `standstill` is how long training stood still for this round, in seconds: from the end of the last
    step before to the end of the first step in it, by the clock of a worker that lived through it; None
    for a new worker.
    """

    step: int
    epoch: float = 0.0
    total_steps: int = 0
    samples: int = 0  # records consumed by the job in all
    loss: float | None = None  # None also for what JSON has no word for: NaN and infinities
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    standstill: float | None = None


class Usage(Message, frozen=True, kw_only=True):
    """What the workers of a node use: cores (float) and resident bytes."""

    cpu: float
    memory: int


class Report(Request[Empty], frozen=True, kw_only=True):
    """Progress and usage of a node; about one a second, from every node of the world.

    The first progress in a round is reported at once: by it the master knows that training stands no longer.
    """

    PATH: ClassVar[str] = "nodes/report"
    node: str
    incarnation: str
    round: Count
    progress: Progress | None = None
    usage: Usage | None = None


class Failure(Request[Empty], frozen=True, kw_only=True):
    """A worker ended badly. `message` is the last line of its error (<= 2,048 characters).

    This only informs, unless it is `final`: what becomes of the round is said by Leave or Join.
    """

    PATH: ClassVar[str] = "nodes/failure"
    node: str
    incarnation: str
    round: Count
    local_rank: Count
    exit_code: int  # negative: killed by that signal
    message: str
    final: bool = False  # the agent gives up: its budget of restarts in place is spent


class Finish(Request[Empty], frozen=True, kw_only=True):
    """All workers of this node ended with exit code 0."""

    PATH: ClassVar[str] = "nodes/finish"
    node: str
    incarnation: str
    round: Count
    progress: Progress | None = None
