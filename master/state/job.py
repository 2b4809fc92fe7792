"""The whole state of a master as one frozen value, and its invariants.

`Job` is replaced, never changed: a handler is `(job, request, now) -> Turn(job, reply)`. Every field encodes
to JSON; a subset of them is the snapshot (see `store.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from elasticjob.api.rpc.rendezvous import World
from elasticjob.api.sizes.facts import JobFacts
from elasticjob.api.sizes.role import Range
from elasticjob.api.v1alpha1.common import MOST_NODES
from elasticjob.master.shards.book import Book
from elasticjob.master.state.check import Check
from elasticjob.master.state.condition import Error, Health
from elasticjob.master.state.node import Node
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.scaling import Scaling
from elasticjob.master.state.servers import Parameters
from elasticjob.master.state.training import Account, Training
from elasticjob.master.state.value import Value as Value
from elasticjob.sizing.facts import Pace

Reply = TypeVar("Reply")


class Waits(Value, frozen=True):
    """How long others wait for a worker that may only be slow, before it is killed; 0: for ever.

    A worker in its first step of a world, or between two steps, may take any time while it computes or reads.
    """

    reading: timedelta = timedelta(minutes=10)  # for its records, or for storage
    computing: timedelta = timedelta(minutes=10)  # in one step: it compiles
    first: timedelta = timedelta(minutes=30)  # without computing or reading anything, before its first step
    outside: timedelta = timedelta(minutes=30)  # the same between two steps: it evaluates, saves
    collective: timedelta = timedelta(seconds=60)  # all for each other, beyond ten usual steps


class Limits(Value, frozen=True):
    """Timeouts of the job."""

    silence: timedelta = timedelta(seconds=5)  # without a Watch for so long, a node is lost
    takeover: timedelta = timedelta(seconds=15)  # the same while agents look for a new master
    last_call: timedelta = timedelta(seconds=30)  # after the last join: start without the missing nodes
    join_timeout: timedelta = timedelta(seconds=900)  # without a world for so long, the job fails
    history: int = 64  # number of world changes kept
    hang: timedelta = timedelta(seconds=4)  # beyond 3 usual steps, if others wait for nothing; 0: never
    waits: Waits = Waits()  # the same, for workers that may only be slow
    idle: timedelta = timedelta(hours=2)  # without computing, and a quarter of it without a step: it fails
    quiet: timedelta = timedelta(seconds=3)  # after the last newcomer that costs a restart: let all enter
    longest_quiet: timedelta = timedelta(seconds=30)  # the same, after the first of them
    pace: Pace = Pace()  # of scaling


class Rule(Value, frozen=True):
    """A rule of the failure policy: what follows from failures with some exit codes, or all `others`."""

    action: str
    codes: tuple[int, ...]
    others: bool = False
    roles: tuple[str, ...] = ()

    def applies(self, role: str, code: int) -> bool:
        """Whether the rule is for this exit code of a node of this role."""
        return (code in self.codes) is not self.others and (not self.roles or role in self.roles)


class Spec(Value, frozen=True):
    """The requested shape of the job; a change applies to the next round.

    `replicas` is the number of nodes that the operator keeps alive by replacing lost ones (`restart_count`
    times after a failure; after `forgive` without one, earlier ones do not count); None: lost nodes are not
    replaced. Only nodes of `roles` delay a round that they
    have not joined. The success of the `leader` is the job's; without one, all nodes of the world must
    succeed. `rules` say what follows from failures.
    """

    job: str
    bounds: Range = Range(most=1)
    limits: Limits = Limits()
    replicas: int | None = None
    restart_count: int = 0
    suspended: bool = False
    forgive: timedelta | None = None
    roles: tuple[str, ...] = ("worker",)
    spares: int = 0  # nodes beyond those that train, which wait for one to be lost
    exclude_stragglers: bool = False  # nodes that are found to be slow do not train; else they are named
    sizes: JobFacts = JobFacts()
    leader: str = ""
    rules: tuple[Rule, ...] = ()

    @property
    def most(self) -> int:
        """The largest possible world."""
        return self.bounds.largest or MOST_NODES

    @property
    def largest_world(self) -> int:
        """The largest world that is foreseen: of a job without a maximum, the one that was asked for."""
        return self.bounds.largest or max(self.replicas or 0, self.bounds.smallest)


class Spot(Value, frozen=True):
    """Where a node is: its node group (an NVLink domain), how many groups there are, and its rack."""

    group: int | None = None
    groups: int | None = None
    rack: str = ""


NAMED = 16
"""How many nodes orders and the history of changes name."""


class Ending(Value, frozen=True):
    """The end of the current world: reason, lost members, and since when. It is never revoked.

    The script of a member in `broken` was started again: collectives with it never complete.
    The first NAMED members are named; a world that has lost so many ends in the same way if it loses more.
    `saving` are members whose plain scripts were asked to end, and until when they may save: no other world
    is formed while they do, since it would begin without what they save.
    """

    reason: str
    since: datetime
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    stopped: datetime | None = None  # when the first member made its last step, as far as the master knows
    saving: dict[str, datetime] = msgspec.field(default_factory=dict)


class Departure(Value, frozen=True):
    """A member that was asked to leave, and may save until then; `gone`: it is here no more."""

    until: datetime
    reason: str
    gone: bool = False


class End(StrEnum):
    """The outcomes of a job."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Verdict(Value, frozen=True):
    """The outcome of a job, with a CamelCase reason and a sentence."""

    end: End
    reason: str
    message: str
    at: datetime


class Proven(Value, frozen=True):
    """The world of `round`, the last that worked, and its `nodes` with their lives: "" for any.

    Since then `failed` worlds of `size` nodes in a row have failed at their start, at last that of `last`.
    """

    round: int = 0
    nodes: dict[str, str] = msgspec.field(default_factory=dict)
    size: int = 0
    failed: int = 0
    last: int = 0


class Job(Value, frozen=True):
    """The whole state of a master.

    `round` is the highest round any node is known to have been in; `world` is the last one that this master
    completed or took over; `version` rises whenever the orders of any node change; `gathering` is the time
    since which no world trains although enough pods run; `batch_slots` never shrinks. `leaving` are members
    of the running world that were asked to end and may save: it ends with the last of them. One that is gone
    stays in it meanwhile, while its next life waits.
    """

    spec: Spec
    nodes: Roster = Roster()
    round: int = 0
    version: int = 1
    world: World | None = None
    ending: Ending | None = None
    leaving: dict[str, Departure] = msgspec.field(default_factory=dict)
    gathering: datetime | None = None
    batch_slots: int = 0
    training: Training = Training()
    account: Account = Account()
    health: Health = Health()
    proven: Proven = Proven()
    restarts: int = 0  # workers that failed
    restarted: int = 0  # how often agents started workers again after failures
    error: Error = Error()
    verdict: Verdict | None = None
    fatal: str = ""  # a failure with which the job fails, by the failure policy
    unsaved: str = ""  # why the last checkpoint could not be written
    topology: dict[str, Spot] = msgspec.field(default_factory=dict)  # of the nodes whose place is known
    check: Check = Check()
    shards: Book = Book()
    scaling: Scaling = Scaling()
    parameters: Parameters = Parameters()
    saved: datetime | None = None  # in a snapshot: when it was made, by the clock of its master

    @property
    def running(self) -> World | None:
        """The world that trains now."""
        return self.world if self.world and not self.ending and not self.verdict else None

    @property
    def most(self) -> int:
        """The most nodes of a world: with spares, as many as should train now; others wait."""
        hi = self.spec.most
        if not self.spec.spares:
            return hi
        sizes = self.scaling.placed.sizes
        should = sum(sizes[role] for role in self.spec.roles if role in sizes) or self.spec.replicas or hi
        return min(self.spec.bounds.clamp(should), hi)

    @property
    def waits_for_pods(self) -> bool:
        """Whether fewer pods have started than the smallest world needs; False for nodes without pods."""
        if self.spec.replicas is None:
            return False
        started = self.nodes.count(lambda kind: kind.started and kind.role in self.spec.roles)
        return started < self.spec.bounds.smallest

    def member(self, name: str) -> bool:
        """Whether this incarnation of the node is a member of the last world."""
        node = self.nodes.get(name)
        return bool(self.world and node and node.round == self.world.round)

    def put(self, node: Node) -> Job:
        """Return the job with `node` added or replaced."""
        return self.but(nodes=self.nodes.put(node))


class Turn(msgspec.Struct, Generic[Reply], frozen=True):
    """The job after a request, and the response; None: the request waits until the job changes."""

    job: Job
    reply: Reply | None = None
