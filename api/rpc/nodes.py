"""Requests about the life of a node (heartbeat, progress, failures, end), and the master's orders to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final

import msgspec

from elasticjob.api.numbers import Count, Finite, Index, Measured, Name, Wait, Whole
from elasticjob.api.rpc.message import Empty, Message, Request

Size = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
"""Bytes."""
CUT_OFF: Final = "was cut off"
"""Words of a Failure's message: the grace was over before the worker had ended, and saved all of it."""
PodName = Annotated[str, msgspec.Meta(max_length=253)]
"""The name of a pod, empty outside of a cluster."""


Words = Annotated[str, msgspec.Meta(max_length=512)]
"""A part of an error's text."""


class Order(StrEnum):
    """The master's order to a node's workers."""

    TRAIN = "train"  # go on
    REGROUP = "regroup"  # the world of `Orders.round` ends: join the next one (see `Orders.lost`)
    STOP = "stop"  # the job ends: stop the workers, exit


class Doing(StrEnum):
    """What the training thread of a worker does; see `trainer/link/pulse.py`."""

    STARTING = "starting"  # no world yet
    OUTSIDE = "outside"  # between two steps: evaluates, saves, prints
    COMPUTING = "computing"  # in a step: waits for no other worker
    REDUCING = "reducing"  # in a step, from its last backward pass on: may wait for the others
    READING = "reading"  # in a step, waits for its records
    WAITING = "waiting"  # for its next world, or for the others at the first step in it
    ENDED = "ended"  # after the last step


class Awaits(StrEnum):
    """What a worker waits for that the kernel tells."""

    STORAGE = "storage"  # one of its processes is in state D, or in a file system
    DATA = "data"  # its main thread waits for a socket, a pipe or a process


LABEL: Final = 200
"""The length of the name of a process group or a collective."""
GROUPS: Final = 64
"""The process groups of a worker of which its agent tells."""
Label = Annotated[str, msgspec.Meta(max_length=LABEL)]
Begun = Annotated[tuple[tuple[Label, Count], ...], msgspec.Meta(max_length=GROUPS)]
"""How many collectives of each group a worker has begun."""


class Collective(Message, frozen=True, kw_only=True):
    """A collective that a worker has begun and not ended: number `seq` of its group, 0 if it has none."""

    group: Label
    name: Label
    seq: Count = 0
    size: Count = 0  # of what all members must have as much of; 0 where they need not
    since: Finite = 0.0  # seconds


class WorkerState(Message, frozen=True, kw_only=True):
    """Where a worker is, as its agent sees it. Times in seconds, at the time of the report."""

    local_rank: Count
    doing: Doing
    step: Count = 0  # the last whole one
    since: Finite = 0.0  # how long it has done this
    idle: Finite | None = None  # since its last step ended; None before the first one in this round
    usual: Finite = 0.0  # of one step to the next, 0 if unknown
    busy: Finite = 0.0  # in a step before it waits for the others, lately
    best: Finite = 0.0  # its usual of that in this round, beyond which few are (once: the least)
    stopped: Finite = 0.0  # for how long (SIGSTOP), 0 if it is not
    cores: Finite = 0.0  # that it uses lately
    still: Finite | None = None  # how long its processes have computed and read nothing; None: unknown
    awaits: Awaits | None = None  # something that comes from elsewhere, and may only be slow
    samples: Finite = 0.0  # records that it takes in a second, lately; 0 if unknown
    collective: Collective | None = None  # that it waits in, as torch's flight recorder has it
    collectives: Begun = ()  # of each group; empty: unknown
    spent: tuple[Finite, ...] = ()  # in each `Doing`, by their order; last: in copies of its state


class WorkerPlace(Message, frozen=True, kw_only=True):
    """A worker of a node."""

    node: str
    local_rank: int


class Hang(Message, frozen=True, kw_only=True):
    """The master's verdict that `workers` keep the others of `round` waiting, in words.

    Each agent writes down where all its workers are, once for each `number`. With `kill` the workers that
    hang are killed, and started again.
    """

    number: int
    round: int
    reason: str
    workers: tuple[WorkerPlace, ...]
    kill: bool = False


class Heir(Message, frozen=True, kw_only=True):
    """A node that may hold the next master, and where it would listen: at the port of the last one."""

    node: str
    address: str


class Succession(Message, frozen=True, kw_only=True):
    """How the nodes go on without `host`, which holds the master: its heirs in order, and its snapshot."""

    host: str
    heirs: tuple[Heir, ...]
    snapshot: str


class Orders(Message, frozen=True, kw_only=True):
    """The state that the master wants of this node now, not an event. `version` rises with every change.

    With TRAIN, `round` is the world that this node is a member of, 0 while it is in none (then `reason` says
    what it waits for). With REGROUP, `round` is the world that ends, and `lost` names the members that are
    gone, or whose workers failed or were started again: if any, collectives of this round are broken (abort
    them at once); if none, the round ends at the next step boundary (a node joins or leaves as planned). A
    REGROUP is never revoked; it stands until the next world is complete, and is answered by a Join with
    `after` = that round.

    `leaving` names the members of the running world whose workers were asked to end and may still save: the
    others wait for them, and a script that ends with 0 meanwhile ends with its world, not with the training.
    `grace` is how many seconds the deletion of this node's pod gives it, None where none is known; `failed`
    says of a STOP that the job has failed.
    """

    version: int
    order: Order
    round: int
    lost: tuple[str, ...] = ()
    reason: str = ""
    succession: Succession | None = None  # with new orders of a master that a node of the job holds
    hang: Hang | None = None
    leaving: tuple[str, ...] = ()
    grace: Finite | None = None
    failed: bool = False


class Watch(Request[Orders], frozen=True, kw_only=True):
    """Heartbeat and long poll in one: returns when orders are newer than `seen`, at the latest after `wait`
    s.

    The agent repeats it at once. A connection that is reset during it is a lost node at once; without a Watch
    for 5 s a node is lost too (`wait` is cut to half of that). `round` is the world in which the workers of
    this node train, 0 if in none: from it a new master takes over a training world, and a node that was
    treated as lost is told to REGROUP.
    """

    PATH: ClassVar[str] = "nodes/watch"
    node: Name
    role: Name
    index: Index
    incarnation: Name
    pod: PodName = ""
    seen: Count = 0
    wait: Wait = 2.0
    round: Count = 0


class Progress(Message, frozen=True, kw_only=True):
    """Progress of the training; `step` counts optimizer steps since the beginning of the job.

    `standstill` is how long training stood still for this round, in seconds: from the end of the last step
    before to the end of the first step in it, by the clock of a worker that took part in both; None for a new
    worker.
    """

    step: Count
    epoch: Finite = 0.0
    total_steps: Count = 0
    samples: Count = 0  # records consumed by the job in total
    loss: Finite | None = None  # None also for NaN and infinities, which JSON cannot encode
    metrics: dict[str, Finite | None] = msgspec.field(default_factory=dict)
    standstill: Finite | None = None
    alarm: Annotated[str, msgspec.Meta(max_length=512)] = (
        ""  # the last loss that was not as usual, in a sentence
    )


class Gpus(Message, frozen=True, kw_only=True):
    """The NVIDIA devices of a node: how busy they are on average, from 0 to 1, and their memory in bytes."""

    count: Count
    utilization: Finite
    memory: Count
    memory_total: Count


class Usage(Message, frozen=True, kw_only=True):
    """Resources used by a node: cores of its workers, memory of all its processes; devices if it has some.

    `memory` is what counts against the container's limit: the working set of its cgroup, with agent, warm
    process and page cache; where the cgroup is not its own, the sum over its processes. `peak` is the most of
    it that this agent has read, None if it does not know; `kernel_peak` the most that the kernel charged
    (with page cache that it could take back).
    """

    cpu: Measured
    memory: Size
    peak: Size | None = None
    kernel_peak: Size | None = None
    gpus: Gpus | None = None


class Kept(Message, frozen=True, kw_only=True):
    """How checkpoints stand on a node: the newest steps in its memory, and in storage as far as it knows.

    `seconds` is how long that took, from the copy to the commit; `error` why the last one is not in storage.
    With `memory_alone` none is ever written there.
    """

    in_memory: Count = 0
    memory_alone: bool = False
    stored: Count = 0
    seconds: Finite = 0.0
    error: Annotated[str, msgspec.Meta(max_length=2048)] = ""


class Report(Request[Empty], frozen=True, kw_only=True):
    """Progress and usage of a node; about one a second, from every node of the world.

    The first progress in a round is reported at once: it ends the standstill. So is a worker that becomes
    late, stops or goes on. `stacks` is the last `Hang.number` for which this agent wrote stacks.
    """

    PATH: ClassVar[str] = "nodes/report"
    node: Name
    incarnation: Name
    round: Count
    progress: Progress | None = None
    usage: Usage | None = None
    workers: tuple[WorkerState, ...] = ()
    stacks: Count = 0
    kept: Kept | None = None


class Failure(Request[Empty], frozen=True, kw_only=True):
    """A worker failed. `message` is the last line of its error (<= 2,048 characters).

    This only informs, unless it is `final`; Leave or Join change the round. `number` counts the failures of
    this agent, and `restarts` how often it has started its workers again for them; 0 from an older agent.
    Exceptions are the same if `way` is.
    """

    PATH: ClassVar[str] = "nodes/failure"
    node: Name
    incarnation: Name
    round: Count
    local_rank: Count
    exit_code: Whole  # negative: killed by that signal
    message: str
    final: bool = False  # the agent gives up: its restarts in place are spent
    unsaved: bool = False  # the training is done, and its last checkpoint could not be written
    number: Count = 0
    restarts: Count = 0
    workers: Count = 1  # of this node
    way: Words = ""  # the message without numbers and addresses, and the frame
    frame: Words = ""  # of the program, that raised the exception; empty: there was none
    echo: bool = False  # it only lost its peers, or was killed for a hang that is told
    anywhere: bool = False  # it made no progress, and would raise the same on any machine


class Finish(Request[Empty], frozen=True, kw_only=True):
    """All workers of this node ended with exit code 0."""

    PATH: ClassVar[str] = "nodes/finish"
    node: Name
    incarnation: Name
    round: Count
    progress: Progress | None = None
