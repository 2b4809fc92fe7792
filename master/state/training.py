"""Progress of the training, the changes of its world, and the account of its time."""

from __future__ import annotations

from datetime import datetime

import msgspec

from elasticjob.api.rpc.nodes import Progress
from elasticjob.master.state.value import Value


class Change(Value, frozen=True):
    """One change of the world, for status and logs: reason, nodes, and duration of the standstill.

    `lost`, `left` and `joined` name some nodes; `others` is how many more there are.
    """

    round: int
    reason: str
    formed: datetime
    nodes: int
    workers: int
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    others: int = 0
    ordered: datetime | None = None  # None in the first round, which ended no world
    stopped: datetime | None = None
    resumed: datetime | None = None
    step_before: int = 0
    step_after: int | None = None
    standstill: float | None = None  # seconds without a step; None until the first one
    measured: bool = False  # by a worker, from step to step; else by the master, from report to report


class Sample(Value, frozen=True):
    """Progress at one time of a round."""

    at: datetime
    step: int
    samples: int


class Training(Value, frozen=True):
    """Progress of the job and where its time went (in seconds).

    `stored` is the step of the newest checkpoint that was told to be in storage, since `stored_at`. `pace` is
    the last known number of steps per second, of an earlier master, too.
    """

    progress: Progress | None = None
    round: int = 0
    at: datetime | None = None  # time of the last progress in this round
    window: tuple[Sample, ...] = ()  # of this round only
    productive: float = 0.0
    standstill: float = 0.0
    changes: tuple[Change, ...] = ()
    stored: int = 0
    pace: float = 0.0
    lost: int = 0  # steps that were made again
    stepped: int = 0  # the last round in which a step was made
    stored_at: datetime | None = None


class Account(Value, frozen=True):
    """Where the workers' seconds went up to `at`, by cause (see `progress/goodput.py`).

    `told` is what workers say they have lost in their world, in `seconds` still productive. `since` is when
    the account began, or began again after the job was suspended; `at` is None while its clock stands. Before
    the first world, which tells how many workers a node has, seconds are those of nodes.
    """

    at: datetime | None = None
    since: datetime | None = None
    in_workers: bool = False
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    told: dict[str, float] = msgspec.field(default_factory=dict)
