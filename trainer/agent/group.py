"""The state of the workers of one node as one frozen value, and how each event changes it.

Life of a worker: STARTING -> WAITING (for a world) -> TRAINING -> WAITING -> … until it ends. A worker that
is not elastic is started into a world and is TRAINING all its life. After exit code 0 its slot is in `ended`;
after a failure the slot is vacant, and `failures` has the reason. Messages about a world are fenced by its
round number. Workers of a node that is `bound` live and die together: they have a model divided among them.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from elasticjob.api.rpc.nodes import Order, Orders, Progress
from elasticjob.api.rpc.rendezvous import Join, Member, Recovery, World
from elasticjob.trainer.link.channel import (
    Advance,
    Behind,
    Bound,
    Boundary,
    Broken,
    Copied,
    FromWorker,
    Hampered,
    Hello,
    Outside,
    Ready,
)

PEERS: Final = re.compile(
    r"Connection (?:closed|reset) by peer"
    r"|gloo\S* .*(?:Broken pipe|Connection refused|Socket closed)"
    r"|DistNetworkError: .*(?:Connection was (?:closed|reset)|Broken pipe|failed to recv|recvValue|sendBytes)"
    r"|ncclRemoteError|remote process exited|NCCL communicator was aborted"
)
"""Errors of a worker that has lost its peers, and nothing else: it had reached them before."""
KILLED = float("inf")  # `kill_at` of a worker that was killed and has not been reaped yet
CLOSING = 1.0  # seconds of a pod's grace that the agent keeps: to say which worker was cut off, and to exit
QUICK = 10.0  # seconds: a script that fails sooner by itself made no progress


class Life(StrEnum):
    """The state of a worker."""

    STARTING = "starting"
    WAITING = "waiting"
    TRAINING = "training"


@dataclass(frozen=True)
class Terms:
    """Constants for the life of the agent."""

    node: str
    role: str
    index: int
    incarnation: str
    address: str
    workers: int
    max_restarts: int
    grace: float
    tries: int = 2  # starts in a row without any progress after which there is no other; 0: no limit
    forgive: float = 0.0  # seconds without a failure after which earlier ones do not count; 0: never
    may_lose_save: bool = False  # the run succeeds even if its last checkpoint could not be written
    in_pod: bool = False  # the cluster makes another with more memory where this one has too little


@dataclass(frozen=True)
class Worker:
    """One process; `round` is the last world it was in, 0 if none yet: then it has no state to lose.

    Workers that were started together have the same number `start`.
    """

    slot: int
    born: float
    start: int = 0
    life: Life = Life.STARTING
    elastic: bool = False
    round: int = 0
    port: int = 0
    broken: bool = False
    progressed: bool = False
    step_seconds: float = 0.0  # of its last step, 0 if unknown
    interrupted: int = 0  # the round that it was asked to end at a boundary
    aborted: int = 0  # the round whose collectives it was told to abort
    kill_at: float | None = None  # deadline for a worker that was asked to end
    hang: str = ""  # the verdict for which it was killed
    ended: bool = False  # it has done the last step of the training
    behind: str = ""  # why its script is at another place than those of the others: it is started again


@dataclass(frozen=True)
class WorkerFailure:
    """A worker that failed; `code` is negative if it was killed by a signal."""

    slot: int
    code: int
    round: int
    at: float
    message: str
    fruitless: bool
    elastic: bool = False
    echo: bool = False  # caused by the loss of a peer on another node
    hung: bool = False  # killed because it kept the others waiting; `message` has the verdict
    step: int = 0  # the last one that workers here had made
    out_of_memory: str = ""  # what was used, if the kernel killed it, or a process of its own, for that
    after_end: bool = False  # it had said that it has done the last step of the training
    main: bool = False  # it was rank 0
    frame: str = ""  # as in `ProcessEnd`
    reported: bool = False

    @property
    def status(self) -> int:
        """The code, as reported: that of a worker out of memory says so, whichever process was killed."""
        return -signal.SIGKILL if self.out_of_memory else self.code


@dataclass(frozen=True)
class Ending:
    """The agent is shutting down, since `began`. `gentle`: workers may finish their step."""

    code: int
    reason: str
    message: str
    gentle: bool = False
    local_rank: int = -1
    kill_at: float = 0.0
    began: float = 0.0
    number: signal.Signals = signal.SIGTERM  # what scripts are asked with
    awaited: bool = False  # the other nodes wait until this one is gone


@dataclass(frozen=True)
class Group:
    """The input of all decisions. `seats`: this node's slots in `world`, in rank order."""

    terms: Terms
    recovery: Recovery
    warm: bool = False  # scripts can be started at once
    vetted: bool = True  # the node needs no check, or has passed it
    bound: bool = False  # a model is divided over the workers of this node
    starts: int = 0  # how often workers were started here
    workers: Mapping[int, Worker] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()
    failures: tuple[WorkerFailure, ...] = ()
    world: World | None = None
    seats: tuple[int, ...] = ()
    spawned: int = 0  # the last round for which workers that are not elastic were started
    orders: Orders | None = None
    gone: tuple[str, ...] = ()  # the nodes that were lost when a world ended last
    given_up: int = 0  # the last round that this node left without an order
    missed: int = 0  # the last world that was formed for a question that had been taken back or changed
    asking: Join | None = None
    asking_seats: tuple[int, ...] = ()
    trained: int = 0  # the world in which a worker here has done the last step of the training, 0: none yet
    paused: frozenset[int] = (
        frozenset()
    )  # slots whose script ended by itself while a peer left, see `peers_leave`
    copies: bool = False  # checkpoints of the training are written
    saving: bool = False  # all workers have ended, and their last checkpoint is being written
    unsaved: str | None = None  # why it is not; empty: it is
    asked_to_leave: str = ""
    leave_code: int = 0  # the exit code of that end
    leave_signal: signal.Signals = signal.SIGTERM
    leave_count: int = 0  # how often it was asked
    ending: Ending | None = None
    progress: Progress | None = None
    progress_round: int = 0  # the world in which `progress` was made
    progress_sent: int = 0  # the last world whose first progress was sent at once
    notes: tuple[Copied | Hampered, ...] = ()  # about checkpoints, for their keeper
    stacks: int = 0  # the last hang whose stacks are written here

    @property
    def round(self) -> int:
        """The last world of this node."""
        return self.world.round if self.world else 0

    @property
    def training(self) -> tuple[Worker, ...]:
        """The workers in the current world."""
        return tuple(w for w in self.workers.values() if w.life is Life.TRAINING and w.round == self.round)

    @property
    def waiting(self) -> tuple[Worker, ...]:
        """The workers that wait for a world, those with a state of the job first."""
        waiting = (w for w in self.workers.values() if w.life is Life.WAITING and w.kill_at is None)
        return tuple(sorted(waiting, key=lambda w: (w.round == 0, w.slot)))

    @property
    def starting(self) -> tuple[Worker, ...]:
        """The workers that are not ready yet."""
        return tuple(w for w in self.workers.values() if w.life is Life.STARTING)

    @property
    def vacant(self) -> tuple[int, ...]:
        """The slots whose worker failed, or was not started yet."""
        return tuple(s for s in range(self.terms.workers) if s not in self.workers and s not in self.ended)

    @property
    def whole(self) -> bool:
        """Whether the workers of a node over which a model is divided are all there, started together."""
        return not self.vacant and len({worker.start for worker in self.workers.values()}) == 1

    @property
    def lost(self) -> tuple[str, ...]:
        """The lost members of the current world, as the master reports."""
        return self.orders.lost if self.orders and self.regroup else ()

    @property
    def regroup(self) -> bool:
        """Whether the master ended the current world."""
        return bool(
            self.orders
            and self.orders.order is Order.REGROUP
            and self.round
            and self.orders.round >= self.round
        )

    @property
    def main(self) -> int | None:
        """The slot of rank 0, if that is here."""
        if self.world is None or not self.seats or self.world.first_rank(self.terms.node):
            return None
        return self.seats[0]

    @property
    def peers_leave(self) -> bool:
        """Whether members of this world were asked to end: scripts may save with them, and end as they do."""
        orders = self.orders
        return bool(orders and orders.leaving and orders.order is Order.TRAIN and orders.round == self.round)

    @property
    def undone(self) -> tuple[WorkerFailure, ...]:
        """The workers that failed after the last step, and whose part after it nobody here has done since.

        The main worker counts from the world of the last step on, whether it could still say that it made it.
        """
        late = (
            each for each in self.failures if each.after_end or (each.main and each.round == self.trained)
        )
        return tuple(failed for failed in late if failed.slot not in self.ended)

    def with_worker(self, worker: Worker) -> Group:
        """Return the group with `worker` in its slot."""
        return replace(self, workers={**self.workers, worker.slot: worker})


@dataclass(frozen=True)
class WarmReady:
    """The warm process has imported everything."""


@dataclass(frozen=True)
class CheckPassed:
    """The node has passed its check."""


@dataclass(frozen=True)
class Message:
    """A worker sent a message."""

    slot: int
    message: FromWorker


@dataclass(frozen=True)
class ProcessEnd:
    """A worker's process ended; `message` is the line of its error output that says why.

    `frame` is where it raised an exception: file, line and function of the program's own, empty without one.
    """

    slot: int
    code: int
    message: str = ""
    out_of_memory: str = ""  # as in `WorkerFailure`
    frame: str = ""


@dataclass(frozen=True)
class LastSave:
    """The last checkpoint is written, or could not be: then `problem` says why."""

    problem: str = ""


@dataclass(frozen=True)
class MasterOrders:
    """The master's orders."""

    orders: Orders


@dataclass(frozen=True)
class NewWorld:
    """A world with this node in it is complete."""

    world: World


@dataclass(frozen=True)
class AskedToLeave:
    """SIGTERM, SIGINT or the like; the run ends unfinished, as the shell's 128 + signal says."""

    reason: str
    code: int = 143
    number: signal.Signals = signal.SIGTERM


@dataclass(frozen=True)
class Dismissal:
    """The master refuses this agent for good, or is unreachable: the exit code and the reason."""

    code: int
    reason: str
    message: str


Event = (
    WarmReady
    | CheckPassed
    | Message
    | ProcessEnd
    | LastSave
    | MasterOrders
    | NewWorld
    | AskedToLeave
    | Dismissal
)


def observe(group: Group, event: Event, now: float) -> Group:
    """Return the group after `event`."""
    match event:
        case WarmReady():
            return replace(group, warm=True)
        case CheckPassed():
            return replace(group, vetted=True)
        case Message(slot=slot, message=message):
            worker = group.workers.get(slot)
            if isinstance(message, Copied | Hampered):
                group = replace(group, notes=(*group.notes, message))
            return heard(group, worker, message) if worker else group
        case ProcessEnd():
            return bury(group, event, now)
        case LastSave(problem=problem):
            return replace(group, unsaved=problem)
        case MasterOrders(orders=orders):
            gone = orders.lost if orders.order is Order.REGROUP else group.gone
            return replace(group, orders=orders, gone=gone, failures=mark_echoes(group, orders))
        case NewWorld(world=world):
            return enter_world(group, world)
        case AskedToLeave(reason=reason, code=code, number=number):
            count = group.leave_count + 1
            asked = replace(group, leave_count=count, leave_signal=number)
            return asked if count > 1 else replace(asked, asked_to_leave=reason, leave_code=code)
        case Dismissal(code=code, reason=reason, message=message):
            return group if group.ending else replace(group, ending=Ending(code, reason, message))
        case _:
            assert_never(event)


def enter_world(group: Group, world: World) -> Group:
    """Return the group in its next world, or out of one whose seats here nobody waits for any more."""
    if world.round <= max(group.round, group.missed):
        return group
    asked, nobody = group.asking, replace(group, asking=None, asking_seats=())
    if asked is None or not any(matches_request(member, asked) for member in world.members):
        return replace(nobody, missed=world.round)
    return replace(nobody, world=world, seats=group.asking_seats)


def matches_request(member: Member, asked: Join) -> bool:
    """Whether a member is this node with the workers that wait now; the loop chooses the port of scripts."""
    is_there = asked.port in (0, member.port)
    return member.node == asked.node and member.slots == asked.slots and is_there


def mark_echoes(group: Group, orders: Orders) -> tuple[WorkerFailure, ...]:
    """Return the failures, those explained by the loss of another node in `orders` marked as echoes.

    A script without progress is never excused: if it fails on every node, each failure would excuse the
    others forever.
    """
    others = set(orders.lost) - {group.terms.node}
    return tuple(
        replace(failed, echo=True)
        if others and failed.round == orders.round and failed.code > 0 and not failed.fruitless
        else failed
        for failed in group.failures
    )


def heard(group: Group, worker: Worker, message: FromWorker) -> Group:
    """Return the group after a worker's message; messages about an older round are ignored."""
    match message:
        case Hello():
            return replace(group.with_worker(replace(worker, elastic=True)), recovery=Recovery.IN_PROCESS)
        case Bound():
            return replace(group, bound=True)
        case Ready(port=port):
            came = reprieve(worker) if worker.aborted else worker  # it was told before it could hear it
            return group.with_worker(replace(came, life=Life.WAITING, port=port, round=0))
        case Advance(round=round_, progress=progress, seconds=seconds, ended=ended):
            ended = worker.ended or ended
            there = group.with_worker(replace(worker, progressed=True, step_seconds=seconds, ended=ended))
            trained = max(group.trained, round_ if ended else 0)
            return replace(there, progress=progress, progress_round=round_, trained=trained)
        case Boundary(round=round_, port=port):
            waits = replace(reprieve(worker), life=Life.WAITING, port=port, broken=False)
            return group.with_worker(waits) if round_ == worker.round else group
        case Broken(round=round_, port=port):
            waits = replace(reprieve(worker), life=Life.WAITING, port=port, broken=True)
            return group.with_worker(waits) if round_ == worker.round else group
        case Outside(round=round_):
            return group.with_worker(reprieve(worker)) if round_ == worker.round else group
        case Behind(reason=reason):
            return group.with_worker(replace(worker, behind=reason))
        case Hampered():
            return group
        case Copied(where=where):
            copies = group.copies or bool(where)
            return replace(group.with_worker(replace(worker, progressed=True)), copies=copies)
        case _:
            assert_never(message)


def reprieve(worker: Worker) -> Worker:
    """Return a worker that reacted to an abort in time: its kill is cancelled, unless already sent."""
    return worker if worker.kill_at == KILLED else replace(worker, kill_at=None)


def bury(group: Group, event: ProcessEnd, now: float) -> Group:
    """Return the group without the worker that ended, with the consequences of its end."""
    worker = group.workers.get(event.slot)
    if worker is None:
        return group
    left = replace(group, workers={slot: w for slot, w in group.workers.items() if slot != event.slot})
    if group.ending:
        return left
    if group.peers_leave and not worker.elastic and worker.kill_at is None and event.code >= 0:
        return replace(left, paused=group.paused | {event.slot})
    if event.code == 0 and (worker.elastic or worker.kill_at is None):
        return replace(left, ended=group.ended | {event.slot})  # a plain script may end so on our SIGTERM
    if worker.kill_at is not None and not worker.hang and not raised_too(group, worker, event):
        return left
    if not worker.elastic:
        left = replace(left, ended=frozenset())  # all are started again, as a script expects of its world
    quick = worker.elastic or now - worker.born < QUICK
    failed = WorkerFailure(
        slot=event.slot,
        code=event.code,
        round=worker.round,
        at=now,
        message=worker.hang or event.message,
        hung=bool(worker.hang),
        step=group.progress.step if group.progress else 0,
        out_of_memory="" if worker.hang else event.out_of_memory,
        fruitless=event.code > 0 and not worker.progressed and quick and not PEERS.search(event.message),
        elastic=worker.elastic,
        after_end=worker.ended,
        main=worker.elastic and worker.slot == group.main,
        frame=event.frame,
    )
    return replace(left, failures=(*group.failures, failed))


def raised_too(group: Group, worker: Worker, event: ProcessEnd) -> bool:
    """Whether a worker had raised the exception of another one here before it was told to end for that."""
    raised = (worker.round, event.code, event.frame, event.message)
    same = ((each.round, each.code, each.frame, each.message) for each in group.failures)
    return bool(event.frame) and raised in same
