"""The whole control plane in virtual time, with one seed: objects, machines, programs, and what breaks them.

A delay or a place is drawn from the seed and the name of what it is for. So a fault shifts no later draws,
and two histories that differ in one line differ in what follows from that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from prometheus_client import CollectorRegistry

from elasticjob.api.resources import Amount
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.parts.names import MASTER
from elasticjob.kube.errors import KubeError
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from elasticjob.master.state.job import Job
from lab.simulation.agent import Agent
from lab.simulation.autoscaler import Looks
from lab.simulation.brain import Brain
from lab.simulation.connection import (
    BRAIN,
    MASTERS,
    OPERATOR,
    USER,
    Connection,
    Strike,
    Write,
    name_of_master,
    program_of,
)
from lab.simulation.history import History
from lab.simulation.master import Master
from lab.simulation.reading import is_over, is_queued, labels_of, uid_of
from lab.simulation.trained import round_of, unsound
from lab.simulation.training import Training
from lab.simulation.truths import LATE, TOLD, Change, Truth
from lab.truths.quota import ENDED, Object, remembered
from lab.virtual import cluster, pods
from lab.virtual.admission import Admission
from lab.virtual.cluster import TEAM
from lab.virtual.loop import LoopClock
from lab.virtual.operator import UNREAD, Operator
from lab.virtual.server import Instant, Verbs

SECONDS: Final = "SECONDS"
EXIT: Final = "EXIT"
"""Variables of a container that ends by itself: after how long, and with which code."""
OURS: Final = (OPERATOR, BRAIN)
TRAINS: Final = "simulation/trains"
"""The annotation of a job of which masters and agents are programs."""
PLAIN: Final = "plain"
"""Its value where the script ends with each world; with any other the script is elastic."""
ENDLESS: Final = 100_000
RETRY: Final = 15.0
"""Seconds in which a program that was disturbed has found back."""
PATIENCE: Final = 5.0
"""Seconds for which a controller waits to see its own writes."""
UNSCHEDULABLE: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0 nodes fit",
}


class Clock(LoopClock):
    """The clock of one machine, which may be set."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@dataclass
class Process:
    """A program that runs, and its connection."""

    program: Any
    connection: Connection

    def kill(self) -> None:
        """End it at once: what it has under way has no effect any more."""
        self.connection.dead = True
        self.program.stop()


@dataclass
class World(cluster.World):
    """Everything. `history` has the seed, `truths` are looked at with each change."""

    history: History = field(default_factory=lambda: History(0))
    truths: tuple[Truth, ...] = ()
    changed: list[Change] = field(default_factory=list)
    """Changes by the operator, in their order."""
    written: list[Write] = field(default_factory=list)
    """Each write, in its order."""
    strikes: dict[tuple[str, int], Strike] = field(default_factory=dict)
    """What befalls the write of a program and number."""
    records: Any = None
    """What Brain has written; made where it starts."""
    passes: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    """What truths remember, by their names."""
    last: float = 0.0
    """When one of our programs wrote, or something changed that is no status."""
    standing: frozenset[str] = frozenset()
    """The resources of which objects are there from the beginning."""
    measured: bool = False
    """Whether the operator counts; else its metrics are silent, which is faster."""
    closed: bool = False
    """Whether all programs have ended."""
    sent: float = 0.0
    """When the request was sent that is carried out now."""
    collects_after: float | None = None
    """Seconds after which the garbage collector takes what has lost its owner; None: soon."""
    held: float = 0.0
    """For how long a write may have been on its way."""
    doubtful: float = 0.0
    """Until when the operator may write again what it has written: it got no answer."""
    _lags: float = 0.0
    _blind: float = 0.0
    _ends_at: dict[str, float] = field(default_factory=dict)
    _calm_since: float = -60.0
    brain: Process | None = None
    masters: dict[str, tuple[str, Master]] = field(default_factory=dict)
    """By the job: the uid of the master's pod, and the program."""
    served: dict[str, str] = field(default_factory=dict)
    """By the job: the uid of that which has the master."""
    agents: dict[str, tuple[str, Agent]] = field(default_factory=dict)
    """By the pod."""
    trainings: dict[str, Training] = field(default_factory=dict)
    """By the uid of the job."""
    looks: list[Looks] = field(default_factory=list)
    """Autoscalers, and tools that apply what git has."""
    _looks_at: dict[str, list[Truth]] = field(default_factory=dict)
    """By resource, the truths that look at changes of it."""
    _process: Process | None = None
    _others: list[Process] = field(default_factory=list)
    stalls: dict[str, float] = field(default_factory=dict)
    """By the job: until when its workers make no step."""
    _numbers: Counter[str] = field(default_factory=Counter)
    _connections: dict[str, Connection] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History, truths: tuple[Truth, ...]) -> World:
        return cls(Random(history.seed), history=history, truths=truths)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server.chance = None
        self.server.admission = Admission(Instant(self.server))
        self._checks = False  # quotas are a truth among others
        self.clock = Clock()
        self.standing = frozenset(self.server.objects)

    def drawn(self, *about: object) -> Random:
        """Return what is drawn from for one thing."""
        return self.history.drawn(*about)

    def _later(self, least: float, most: float, call: Callable[..., object], *given: Any) -> None:
        delay = self.drawn(call.__name__, *given[:1]).uniform(least, most)
        if call == self.server.collect and self.collects_after is not None:
            delay = self.collects_after
        self.at(delay, call, *given)

    # programs

    @property
    def user(self) -> Verbs:
        return self.connection(USER)

    def connection(self, program: str) -> Connection:
        """Return the connection of a program that nobody kills."""
        if program not in self._connections:
            self._connections[program] = Connection(self.server, program, self, self.history.seed)
        return self._connections[program]

    def start(self, behind: int = 0, seconds: float = 0.0) -> None:
        """The operator starts, or the next one leads; its first lists may be old."""
        connection = Connection(self.server, OPERATOR, self, self.history.seed + self._numbers["starts"])
        self._numbers["starts"] += 1
        chance = self.drawn(OPERATOR, self._numbers["starts"])
        metrics = Metrics(CollectorRegistry()) if self.measured else UNREAD
        self.operator = Operator(connection, chance, self.has_workloads, self.clock, behind, seconds, metrics)
        self._process = Process(self.operator, connection)

    def crash(self, back: float = 1.0, behind: int = 0) -> None:
        """The operator is killed, and another one starts."""
        if self._process is None:
            return
        self._process.kill()
        self._end(self._process)
        self.at(back, self._starts_again, behind)

    def _starts_again(self, behind: int) -> None:
        if self._process is None:
            self.start(behind, 2.0 if behind else 0.0)

    def _end(self, process: Process) -> None:
        self.passes += process.program.passes
        if process is self._process:
            self._process = self.operator = None

    def depose(self, seconds: float) -> None:
        """The leader's process is stopped, and another leads; it goes on later, when its lease has passed.

        What it had under way then is written all the same, and nothing else.
        """
        process = self._process
        if process is None:
            return
        self.hold(seconds)
        process.connection.paused = asyncio.Event()
        process.program.deafen()
        self._others.append(process)
        self._process = None
        self.start()
        self.at(seconds, self._goes_on, process)

    def _goes_on(self, process: Process) -> None:
        paused, process.connection.paused, process.connection.fenced = process.connection.paused, None, True
        if paused:
            paused.set()
        self.at(1.0, self._leaves_for_good, process)

    def _leaves_for_good(self, process: Process) -> None:
        if process in self._others:
            self._others.remove(process)
            process.connection.dead = True
            process.program.cancel()
            self._end(process)

    def start_brain(self) -> None:
        """Brain starts; what it has written before it finds again."""
        self._numbers["brains"] += 1
        connection = Connection(self.server, BRAIN, self, self.history.seed)
        chance = self.drawn(BRAIN, self._numbers["brains"])
        self.brain = Process(Brain(connection, chance, self.records, clock=LoopClock()), connection)

    def crash_brain(self, back: float) -> None:
        if self.brain:
            self.brain.kill()
            self._end(self.brain)
            self.brain = None
            self.at(back, self.start_brain)

    def crash_master(self, connection: Connection) -> None:
        """A master's container ends; the operator sees to the next."""
        for pod in self.server.every(POD):
            if connection.program == name_of_master(uid_of(pod)):
                self._ends(pod["metadata"]["name"], uid_of(pod), 137)

    def close(self) -> None:
        """End all programs."""
        self.closed = True
        for look in self.looks:
            look.stop()
        for pod in self.server.every(POD):
            for program in self._programs(pod):
                program.kill(silently=True)
        if self.brain:
            self.brain.kill()
            self._end(self.brain)
        for process in self._others:
            process.connection.dead = True
            process.program.cancel()
        if self._process:
            self._process.kill()
            self._end(self._process)

    # the book of writes

    def enter(self, program: str, controller: str, verb: str, kind: str, name: str) -> Write:
        counted = program_of(program)
        self._numbers[counted] += 1
        write = Write(program, self._numbers[counted], controller, verb, kind, name, self.time)
        self.written.append(write)
        return write

    def strike(self, write: int, strike: Strike, program: str = OPERATOR) -> None:
        self._arm(program, self._numbers[program] + write, strike)

    def _arm(self, program: str, number: int, strike: Strike) -> None:
        """A write that something else befalls already leaves it to the next."""
        while (program, number) in self.strikes:
            number += 1
        self.strikes[program, number] = strike

    def struck(self, write: Write) -> Strike | None:
        program = program_of(write.program)
        strike = self.strikes.pop((program, write.number), None)
        if strike and strike.spares == write.verb:
            self._arm(program, write.number + 1, strike)
            return None
        if strike:
            self.trouble(RETRY)
        return strike

    # what follows from each change

    def _heard(self, resource: str, old: Manifest | None, new: Manifest | None) -> None:
        super()._heard(resource, old, new)
        writer = self.server.writer
        if writer in OURS or not (_is_status(old, new) or program_of(writer) == MASTERS):
            self.last = self._now
        change = Change(self.server.writer, resource, old, new)
        if writer == OPERATOR:
            self.changed.append(change)
        if resource not in self._looks_at:
            self._looks_at[resource] = [each for each in self.truths if each.looks_at(resource)]
        for truth in self._looks_at[resource]:
            for sentence in truth.step(self, change):
                self.breaks(f"{truth.name}: {sentence}")

    # machines

    def _starts(self, name: str, uid: str) -> None:
        pod = self._pod(name, uid)
        if pod is None or pod["status"]["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
            return
        if not (machines := with_room(pod, self.server.every(POD), self.server.every(NODE))):
            self._unschedulable(pod)
            self.at(1.5, self._starts, name, uid)
            return
        chosen = self.drawn("place", name).choice(sorted(each["metadata"]["name"] for each in machines))
        pod = pods.start(self.server, pod, chosen)
        self.runs(pod)

    def _tells_code(self, name: str) -> bool:
        return bool(self.drawn("code", name).random() < 0.5)

    def _unschedulable(self, pod: Manifest) -> None:
        self.server.change(POD, pod, status={**pod["status"], "conditions": [UNSCHEDULABLE]})

    def runs(self, pod: Manifest) -> None:
        """The container of a pod has started."""
        about, labels = pod["metadata"], pod["metadata"].get("labels", {})
        name, uid, job = about["name"], about["uid"], labels.get(LABEL_JOB, "")
        seconds, code = own_end(pod)
        if not self._trains(job) or not about.get("ownerReferences"):  # or a copy of somebody's
            if seconds:
                self.at(seconds, self._ends, name, uid, code)
        elif labels.get(LABEL_ROLE) == MASTER:
            connection = Connection(self.server, name_of_master(uid), self, self.history.seed)
            ended = partial(self._ends, name, uid)
            master = Master(connection, LoopClock(), TEAM, job, name, ended, self._judge)
            self.masters[job], self.served[job] = (uid, master), uid_of(self.there(ELASTICJOB, job))
            master.start()
        else:
            steps = int(seconds) or ENDLESS
            ended, chance = partial(self._ends, name, uid), self.drawn("agent", name, uid)
            training = self._training(job, ENDLESS if code else steps)
            agent = Agent(pod, self.master_of, LoopClock(), chance, training, ended)
            self.agents[name] = uid, agent
            agent.start()
            if code:
                self.at(seconds, agent.fail, code)

    def _training(self, job: str, steps: int) -> Training:
        """Return the training of a job, with as many steps as its newest worker makes."""
        about = (self.there(ELASTICJOB, job) or {}).get("metadata", {})
        plain = about.get("annotations", {}).get(TRAINS) == PLAIN
        breaks, stands = lambda why: self.breaks(f"training: {why}"), partial(self._stands, job)
        made = Training(0, breaks, plain=plain, stands=stands)
        found = self.trainings.setdefault(about.get("uid", ""), made)
        found.steps = steps
        return found

    def _stands(self, job: str) -> float:
        """The seconds in which a job makes no step yet."""
        return max(0.0, self.stalls.get(job, 0.0) - self.time)

    def _trains(self, job: str) -> bool:
        """Whether masters and agents of a job are programs; else their pods only run."""
        found = self.there(ELASTICJOB, job)
        return bool(found and found["metadata"].get("annotations", {}).get(TRAINS))

    def master_of(self, job: str) -> Master | None:
        """The newest master of a job, which may be gone."""
        return self.masters[job][1] if job in self.masters else None

    def _judge(self, before: Job, after: Job) -> None:
        for sentence in unsound(before, after):
            self.breaks(f"training: {sentence}")
        if after.round != before.round:
            self.at(TOLD, self._has_told, after.spec.job, after.round)

    def _has_told(self, name: str, number: int) -> None:
        """A new round is in the status within seconds, also where a write of it was refused."""
        job, master = self.there(ELASTICJOB, name), self.master_of(name)
        if job is None or master is None or master.core is None or self.lags or self.server.away:
            return
        is_newest = self.served.get(name) == uid_of(job) and master.core.job.round == number
        if is_newest and number > round_of(job) and not is_over(job):
            self.breaks(f"rounds-are-told: {name} is in round {number}, its status in {round_of(job)}")

    def _programs(self, pod: Manifest) -> Iterator[Master | Agent]:
        about = pod["metadata"]
        job = about.get("labels", {}).get(LABEL_JOB, "")
        for uid, program in (self.masters.get(job, ("", None)), self.agents.get(about["name"], ("", None))):
            if program and uid == about["uid"]:
                yield program

    def _pod_changed(self, old: Manifest | None, new: Manifest | None) -> None:
        super()._pod_changed(old, new)
        leaves = new and "deletionTimestamp" in new["metadata"]
        if leaves and old and new and "deletionTimestamp" not in old["metadata"]:
            for program in self._programs(new):
                program.stop()
        if old and (new is None or (new["status"]["phase"] in ENDED and old["status"]["phase"] not in ENDED)):
            machine = old["spec"].get("nodeName", "")
            for program in self._programs(old):
                program.kill(silently=self.there(NODE, machine) is None)

    def add(self, kind: Kind[Any], made: Manifest) -> None:
        self._by_nobody(super().add, kind, made)

    def remove(self, kind: Kind[Any], name: str) -> None:
        self._by_nobody(super().remove, kind, name)

    def lose(self, machine: str) -> None:
        self.server.writer = ""
        super().lose(machine)
        for pod in self.server.every(POD):
            if pod["spec"].get("nodeName") == machine:
                for program in self._programs(pod):
                    program.kill(silently=True)

    def _ends(self, name: str, uid: str, code: int, message: str = "") -> None:
        pod = self._pod(name, uid)
        if pod and pod["status"]["phase"] == "Running" and self.there(NODE, pod["spec"]["nodeName"]):
            pods.end(self.server, pod, code, message=message)

    def exits(self, pod: Manifest, code: int) -> None:
        """The container of a pod ends."""
        pods.end(self.server, pod, code)

    def cordon(self, machine: str, on: bool) -> None:
        """A machine takes no more pods, or takes some again."""
        found = self.there(NODE, machine)
        if found and bool(found.get("spec", {}).get("unschedulable")) != on:
            self.server.change(NODE, found, spec={"unschedulable": True} if on else {})

    async def after(self, deed: asyncio.Task[None]) -> None:
        """Deeds of the same instant happen at once."""

    # reading

    def next_number(self, what: str) -> int:
        """The next one of a series, from 1."""
        self._numbers[what] += 1
        return self._numbers[what]

    def jobs(self) -> list[Manifest]:
        """The jobs in queues that are ours."""
        every = (each for each in super().jobs() if not each["spec"].get("managedBy"))
        return [each for each in every if is_queued(each)]

    @property
    def time(self) -> float:
        """The virtual seconds since the beginning."""
        return self._now

    @property
    def lags(self) -> bool:
        """Whether the operator may see less than its own writes, or an older operator writes."""
        return self.time < self._lags

    def trouble(self, seconds: float) -> None:
        """Something goes wrong for so long, and a pause before a retry may follow."""
        self._calm_since = max(self._calm_since, self.time + seconds + RETRY)

    @property
    def calm_for(self) -> float:
        """For how many seconds nothing has gone wrong."""
        return self.time - self._calm_since

    @property
    def is_calm(self) -> bool:
        return self.calm_for > PATIENCE

    @property
    def is_blind(self) -> bool:
        """Whether the operator may see less than it has written, for longer than it waits for that."""
        return self.time < self._blind

    def lag(self, seconds: float) -> None:
        """The operator sees less than usual for a while, and acts on it."""
        if seconds >= PATIENCE:
            self._blind = max(self._blind, self.time + seconds + 1.0)
        self._lags = max(self._lags, self.time + seconds + 8.0)

    def hold(self, seconds: float) -> None:
        """A write is on its way for so long, and the operator sees less meanwhile."""
        self.lag(seconds)
        self.held = max(self.held, seconds + LATE)

    def lasts(self, what: str, seconds: float, end: Callable[[], None]) -> None:
        """Something is wrong for so long; of faults that overlap the last one ends it."""
        self._ends_at[what] = max(self._ends_at.get(what, 0.0), self.time + seconds)

        def over() -> None:
            if self.time >= self._ends_at[what] - 1e-6:
                end()

        self.at(seconds, over)

    def at(self, seconds: float, call: Callable[..., object], *given: Any) -> None:
        """Call something so many seconds later, which no program does."""
        asyncio.get_running_loop().call_later(seconds, self._by_nobody, call, *given)

    def _by_nobody(self, call: Callable[..., object], *given: Any) -> None:
        self.server.writer = ""
        call(*given)

    def every(self, kind: Kind[Any]) -> list[Manifest]:
        """All objects of a kind."""
        return self.server.every(kind)

    def of_job(self, kind: Kind[Any], job: str) -> list[Manifest]:
        """The objects of a kind that belong to a job, by its label."""
        every = self.server.every(kind)
        return [each for each in every if labels_of(each).get(LABEL_JOB) == job]

    def names(self, kind: Kind[Any] = ELASTICJOB) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.server.every(kind))

    async def tries(self, sentence: str, ask: Any) -> None:
        """Await what a user asks the server; a refusal is told, as to a user."""
        self.note(f"--- {sentence}")
        try:
            await ask
        except KubeError as error:
            self.note(f"    refused: {error}")


def _is_status(old: Manifest | None, new: Manifest | None) -> bool:
    if old is None or new is None:
        return False
    return all(old.get(part) == new.get(part) for part in ("spec", "data")) and all(
        old["metadata"].get(part) == new["metadata"].get(part) for part in ("deletionTimestamp", "labels")
    )


def own_end(pod: Manifest) -> tuple[float, int]:
    """After how many seconds the container of a pod ends by itself, 0 for never, and its exit code."""
    env = pod["spec"]["containers"][0].get("env") or ()
    given = {each["name"]: each.get("value", "") for each in env}
    return float(given.get(SECONDS) or 0), int(given.get(EXIT) or 0)


def with_room(pod: Manifest, there: list[Manifest], machines: list[Manifest]) -> list[Manifest]:
    """The machines on which a pod can be, beside those that are there: there is room, and no taint."""
    used = Counter[str]()
    for each in there:
        if each["status"]["phase"] in ("Pending", "Running"):
            used[each["spec"].get("nodeName", "")] += _cpu(each)
    return [
        each
        for each in machines
        if not each.get("spec", {}).get("unschedulable")
        and used[each["metadata"]["name"]] + _cpu(pod) <= 1000 * int(each["status"]["allocatable"]["cpu"])
    ]


@remembered
def _cpu(pod: Object) -> int:
    """The thousandths of cores that a pod asks for."""
    asked = (
        each.get("resources", {}).get("requests", {}).get("cpu", "0") for each in pod["spec"]["containers"]
    )
    return sum(int(Amount.parse(each).value * 1000) for each in asked)
