"""The whole state of a master as one frozen value, and its invariants.

`Job` is replaced, never changed: a handler is `(job, request, now) -> Turn(job, reply)`. Every field encodes
to JSON; a subset of them is the snapshot (see `store.py`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from elasticjob.api.rpc.nodes import Kept, Progress, Usage
from elasticjob.api.rpc.rendezvous import Recovery, World
from elasticjob.master.shards.book import Book
from elasticjob.master.state.condition import Health, Told
from elasticjob.master.state.roster import Kind, Roster
from elasticjob.master.state.scaling import Pace, Scaling, Wish
from elasticjob.master.state.servers import Parameters
from elasticjob.master.state.value import Value as Value

Reply = TypeVar("Reply")


class Bounds(Value, frozen=True):
    """The world size in nodes: a multiple of `unit` between `minimum` and `maximum`."""

    minimum: int = 1
    maximum: int = 1
    unit: int = 1

    @property
    def lo(self) -> int:
        """The smallest possible world."""
        return -(-self.minimum // self.unit) * self.unit

    @property
    def hi(self) -> int:
        """The largest possible world."""
        return self.maximum // self.unit * self.unit

    def problem(self) -> str:
        """Return why no world size fits, or an empty string."""
        if self.unit < 1 or self.minimum < 1:
            return f"minimum {self.minimum} and unit {self.unit} must be at least 1"
        if self.lo > self.hi:
            return (
                f"no multiple of nodeUnit {self.unit} lies between {self.minimum} and {self.maximum} nodes: "
                f"the smallest world would have {self.lo}, the largest {self.hi}"
            )
        return ""


class Limits(Value, frozen=True):
    """Timeouts of the job."""

    silence: timedelta = timedelta(seconds=5)  # without a Watch for so long, a node is lost
    takeover: timedelta = timedelta(seconds=15)  # the same while agents look for a new master
    last_call: timedelta = timedelta(seconds=30)  # after the last join: start without the missing nodes
    join_timeout: timedelta = timedelta(seconds=900)  # without a world for so long, the job fails
    history: int = 64  # number of world changes kept
    hang: timedelta = timedelta(seconds=4)  # beyond 3 usual steps, while others wait; 0: never
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
    bounds: Bounds = Bounds()
    limits: Limits = Limits()
    replicas: int | None = None
    restart_count: int = 0
    suspended: bool = False
    forgive: timedelta | None = None
    roles: tuple[str, ...] = ("worker",)
    spares: int = 0  # nodes beyond those that train, which wait for one to be lost
    exclude_stragglers: bool = False  # nodes that are found to be slow do not train; else they are named
    wish: Wish = Wish()
    leader: str = ""
    rules: tuple[Rule, ...] = ()


class Spot(Value, frozen=True):
    """Where a node is: its node group (an NVLink domain), how many groups there are, and its rack."""

    group: int | None = None
    groups: int | None = None
    rack: str = ""


class Phase(StrEnum):
    """The phase of a node, from its pod or, without pods, from its agent."""

    INITIAL = "Initial"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    DELETED = "Deleted"


NAMED = 16
"""How many nodes orders and the history of changes name."""
ENDS = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.DELETED})
"""The terminal phases of a pod."""


class Joined(Value, frozen=True):
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
    incarnation: str = ""
    retired: tuple[str, ...] = ()
    beat: datetime | None = None
    round: int = 0
    left: int = 0
    joined: Joined | None = None
    elastic: bool = False
    finished: bool = False
    failed: bool = False
    failures: int = 0
    failure: str = ""
    reported: tuple[int, int] | None = None
    usage: Usage | None = None
    kept: Kept | None = None
    told: Told | None = None
    failed_at: datetime | None = None
    excluded: str = ""
    resource: dict[str, str] = msgspec.field(default_factory=dict)  # requests of its training container
    pends: datetime | None = None  # since when its pod waits for a machine; None: it does not

    @property
    def ended(self) -> bool:
        """Whether this incarnation takes no part any more."""
        return self.finished or self.failed or bool(self.excluded) or self.phase in ENDS

    @property
    def completed(self) -> bool:
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
        return self.completed or self.beat is not None or self.phase is Phase.RUNNING

    @property
    def place(self) -> tuple[str, int, str]:
        """Sort key of nodes of equal age."""
        return self.role, self.index, self.name

    @property
    def kind(self) -> Kind:
        """What the rules ask about the node: equal kinds are counted together (see `Roster`)."""
        ended, running = self.ended, self.phase is Phase.RUNNING
        out, agent = self.leaving or ended, self.beat is not None
        return Kind(
            role=self.role,
            failures=self.failures,
            alive=not out and (agent or running),
            started=agent or running or self.completed,
            completed=self.completed,
            finished=self.finished,
            joined=self.joined is not None,
            out=out,
            holds=self.round,
            costly=self.joined is not None and self.joined.recovery is Recovery.RESTART,
            pends=self.pends is not None,
        )


class Ending(Value, frozen=True):
    """The end of the current world: reason, lost members, and since when. It is never revoked.

    The script of a member in `broken` was started again: who waits for it in a collective waits in vain.
    The first NAMED members are named; a world that has lost so many ends in the same way if it loses more.
    """

    reason: str
    since: datetime
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    stopped: datetime | None = None  # when the first member made its last step, as far as the master knows


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
    """Progress of the job and where its time went (in seconds)."""

    progress: Progress | None = None
    round: int = 0
    at: datetime | None = None  # time of the last progress in this round
    window: tuple[Sample, ...] = ()  # of this round only
    productive: float = 0.0
    standstill: float = 0.0
    changes: tuple[Change, ...] = ()


class Account(Value, frozen=True):
    """Where the workers' seconds went up to `at`, by cause (see `account.py`).

    `told` is what workers say they have lost in their world, in `seconds` still productive. `since` is when
    the account began, or began again after the job was suspended; `at` is None while its clock stands. Before
    the first world, which tells how many workers a node has, seconds are those of nodes.
    """

    at: datetime | None = None
    since: datetime | None = None
    in_workers: bool = False
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    told: dict[str, float] = msgspec.field(default_factory=dict)


class End(StrEnum):
    """The outcomes of a job."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


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


class Verdict(Value, frozen=True):
    """The outcome of a job, with a CamelCase reason and a sentence."""

    end: End
    reason: str
    message: str
    at: datetime


class Job(Value, frozen=True):
    """The whole state of a master.

    `round` is the highest round any node is known to have been in; `world` is the last one that this master
    completed or took over; `version` rises whenever the orders of any node change; `gathering` is the time
    since which no world trains although enough pods run; `batch_slots` never shrinks.
    """

    spec: Spec
    nodes: Roster = Roster()
    round: int = 0
    version: int = 1
    world: World | None = None
    ending: Ending | None = None
    gathering: datetime | None = None
    batch_slots: int = 0
    training: Training = Training()
    account: Account = Account()
    health: Health = Health()
    restarts: int = 0  # workers that failed
    verdict: Verdict | None = None
    fatal: str = ""  # a failure with which the job fails, by the failure policy
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
        lo, hi = self.spec.bounds.lo, self.spec.bounds.hi
        if not self.spec.spares:
            return hi
        sizes = self.scaling.placed.sizes
        should = sum(sizes[role] for role in self.spec.roles if role in sizes) or self.spec.replicas or hi
        return min(max(lo, should // self.spec.bounds.unit * self.spec.bounds.unit), hi)

    @property
    def waits_for_pods(self) -> bool:
        """Whether fewer pods have started than the smallest world needs; False for nodes without pods."""
        if self.spec.replicas is None:
            return False
        started = self.nodes.count(lambda kind: kind.started and kind.role in self.spec.roles)
        return started < self.spec.bounds.lo

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


def invariants(job: Job) -> list[str]:
    """Return the violated invariants of `job`. Checked after every turn in tests."""
    return [sentence for check in INVARIANTS if (sentence := check(job))]


def _world_fits_the_batch(job: Job) -> str:
    """Bounds are checked when a world is formed, not here: they may have changed since."""
    if not job.world:
        return ""
    names = [member.node for member in job.world.members]
    if not names or len(set(names)) != len(names):
        return f"world {job.world.round} names its members {names}"
    if job.world.size > job.world.batch_slots:
        return f"world {job.world.round} has {job.world.size} workers, batch_slots {job.world.batch_slots}"
    return ""


def _rounds_rise(job: Job) -> str:
    world = job.world.round if job.world else 0
    ahead = [node.name for node in job.nodes.values() if node.round > job.round]
    return (
        f"world {world} and nodes {ahead} are ahead of round {job.round}"
        if world > job.round or ahead
        else ""
    )


def _members_are_what_the_world_says(job: Job) -> str:
    lives = {member.node: member.incarnation for member in job.world.members} if job.world else {}
    wrong = [n.name for n in job.nodes.values() if job.member(n.name) and lives.get(n.name) != n.incarnation]
    return f"{wrong} are not members of the world they claim" if wrong else ""


def _running_world_is_whole(job: Job) -> str:
    if not job.running:
        return ""
    gone = [member.node for member in job.running.members if not job.member(member.node)]
    return f"world {job.running.round} runs without its members {gone}" if gone else ""


def _rank_zero_is_the_oldest(job: Job) -> str:
    ages = [member.since for member in job.world.members] if job.world else []
    sound = ages[:1] == [min(ages, default=0)] if job.topology else ages == sorted(ages)
    return "" if sound or not ages else f"ranks are not in the order of age: {ages}"


def _only_the_living_wait(job: Job) -> str:
    wrong = [n.name for n in job.nodes.values() if n.joined and (not n.incarnation or n.leaving or n.ended)]
    return f"{wrong} wait for a world, but have no life that could enter it" if wrong else ""


def _gathering_is_the_opposite_of_training(job: Job) -> str:
    if job.verdict or (job.gathering is None) == (job.running is not None):
        return ""
    return f"gathering since {job.gathering} while world {job.running} runs"


def _histories_are_bounded(job: Job) -> str:
    return "too many changes kept" if len(job.training.changes) > job.spec.limits.history else ""


def _counts_are_right(job: Job) -> str:
    nodes, exact = job.nodes, job.nodes.exact()
    bounds = (
        (nodes.heard, exact.heard, "heard"),
        (nodes.expires, exact.expires, "expires"),
        (nodes.first, exact.first, "first"),
        (exact.last, nodes.last, "last"),
    )
    wrong = [name for lo, hi, name in bounds if hi is not None and (lo is None or lo > hi)]
    wrong += [role for role, index in exact.highest.items() if index > nodes.highest[role]]
    wrong += ["kinds"] if nodes.kinds != exact.kinds else []
    return f"the roster's {wrong} are not those of its nodes" if wrong else ""


INVARIANTS = (
    _counts_are_right,
    _world_fits_the_batch,
    _rounds_rise,
    _members_are_what_the_world_says,
    _running_world_is_whole,
    _rank_zero_is_the_oldest,
    _only_the_living_wait,
    _gathering_is_the_opposite_of_training,
    _histories_are_bounded,
)
