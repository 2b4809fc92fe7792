"""Who decides the sizes: fixed settings, the peer's rules as documented, and our own code.

The peer's rules are those of DLRover 0.6.1 as its documentation and source tell them. Two of its slips would
make the comparison cheap, so they are left out of both variants: the unit error that turns each planned
memory into 0, and the stage that its optimizer does not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from statistics import mean
from typing import Any, Final, Protocol, TypeVar

from benchmarks.simulator.physics import GIB
from benchmarks.simulator.world import Pod, Simulated
from elasticjob.api.resources import Bytes, Cores, Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.master.scaling import stages, statistics
from elasticjob.master.scaling.local import LocalOptimizer
from elasticjob.master.state.job import Job
from elasticjob.sizing.rules.oom import next_memory

T = TypeVar("T")
MIB: Final = 2**20


class Policy(Protocol):
    """Decides about one job; `turn` is called each TICK."""

    def turn(self, simulated: Simulated) -> None: ...


def amount(cores: float | None = None, mib: float | None = None) -> Resources:
    """Return cores and MiB as resources."""
    given: dict[str, Any] = {}
    if cores is not None:
        given["cpu"] = Cores.parse(round(cores, 3))
    if mib is not None:
        given["memory"] = Bytes(int(mib * MIB))
    return Resources(given)


def drive(answer: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        answer.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise RuntimeError("the local optimizer waits for something")


@dataclass
class Fixed:
    """What a user wrote, once and for all; without a number of workers, what is best in hindsight."""

    workers: int = 0
    cores: float = 0.0
    gib: float = 0.0
    servers: int = 0
    _told: bool = False

    def turn(self, simulated: Simulated) -> None:
        simulated.oom.clear()  # a pod that was out of memory comes back with as much
        if self._told:
            return
        self._told = True
        row, found = simulated.row, simulated.row.best
        known = self.workers > 0
        mib = {
            role: 1024 * (self.gib if known else memory.peak * 1.05) for role, memory in row.memory.items()
        }
        workers, cores = (self.workers, self.cores) if known else (found.workers, found.cores)
        groups = {"worker": Group(workers, amount(cores, mib["worker"]))}
        if row.servers:
            servers, cores = (self.servers, self.cores) if known else (found.servers, found.server_cores)
            groups["ps"] = Group(servers, amount(cores, mib["ps"]))
        simulated.apply("fixed", Change(groups, reason="the user's"))


@dataclass
class Ours:
    """The master's own code: records, questions, the local optimizer; the operator's growth after a kill."""

    optimizer: LocalOptimizer = field(default_factory=LocalOptimizer)
    _job: Job | None = None
    _kills: int = 0

    def turn(self, simulated: Simulated) -> None:
        now = simulated.now
        job = statistics.take(simulated.job(self._job or simulated.first_job()), now)
        if facts := stages.question(job, now):
            change = stages.permit(job, facts, drive(self.optimizer.plan(facts)))
            if change:
                simulated.apply(stages.name_of(job, facts), change)
            job = stages.after_answer(job, facts, change, now)
        self._job = job
        for pod in simulated.oom:
            self._grow(simulated, pod)
        simulated.oom.clear()

    def _grow(self, simulated: Simulated, pod: Pod) -> None:
        """Do what the operator does about a pod that was out of memory."""
        if pod.gib is None:
            return
        had = Bytes(int(pod.gib * GIB))
        given = next_memory(had)
        spec = simulated.resource.spec.replica_resource_specs[pod.role]
        if given is None or ("memory" in spec.resource and Bytes.parse(spec.resource["memory"]) > had):
            return
        self._kills += 1
        group = Group(resource=Resources({"memory": given}))
        simulated.apply(f"memory-{self._kills}", Change({pod.role: group}, reason="out of memory"))


@dataclass
class Peer:
    """The peer's optimizer. `intended`: all-reduce jobs grow into free capacity, and recover from kills."""

    intended: bool = False
    _stage: str = "create"
    _planned: float = -1e9
    _planned_servers: float = -1e9
    _history: list[tuple[int, float]] = field(default_factory=list)  # workers, speed
    _records: list[Mapping[str, Sequence[tuple[float, float, float, float]]]] = field(default_factory=list)
    _sampled: bool = False
    _key: int = 0

    def turn(self, simulated: Simulated) -> None:
        row, seconds = simulated.row, simulated.seconds
        if self._stage == "create":
            self._stage = "run"
            self._apply(simulated, self._first(simulated))
            return
        self._recover(simulated)
        self._note(simulated)
        if row.servers:
            if seconds - self._planned >= 300 and len(self._records) >= 5:
                self._plan_servers(simulated)
        elif self.intended and seconds - self._planned >= 1800 and self._running(simulated):
            self._grow(simulated)

    def _first(self, simulated: Simulated) -> dict[str, Group]:
        cores = min(ceil(simulated.row.limit_cores / 5), 16)
        mib = min(ceil(simulated.row.limit_gib * 1024 / 5), 8192)
        roles = ("ps", "worker") if simulated.row.servers else ("worker",)
        return {role: Group(1, amount(cores, mib)) for role in roles}

    def _recover(self, simulated: Simulated) -> None:
        """Give twice the memory to the role of a node that was killed; never in all-reduce jobs."""
        for pod in simulated.oom:
            if pod.gib is not None and (simulated.row.servers or self.intended):
                mib = min(pod.gib * 2, pod.gib + 8, 64.0) * 1024
                self._apply(simulated, {pod.role: Group(resource=amount(None, mib))})
        simulated.oom.clear()

    def _running(self, simulated: Simulated) -> list[Pod]:
        return [pod for pod in simulated.pods.values() if pod.ready <= simulated.seconds]

    def _note(self, simulated: Simulated) -> None:
        """Take a record while all nodes run: cores and MiB used and given, of each role."""
        running, used = self._running(simulated), simulated.used_cores()
        if not simulated.pods or len(running) < len(simulated.pods):
            return
        found: dict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
        for pod in running:
            cores, mib = used.get(pod.name, 0.0), simulated.used_gib(pod) * 1024
            found[pod.role].append((cores, mib, simulated.cores(pod), (pod.gib or 0.0) * 1024))
        self._records = [*self._records, found][-5:]
        workers = len(found["worker"])
        track = simulated.outcome.track
        if track and track[-1][2] > 0:
            self._history.append((workers, track[-1][2]))

    def _grow(self, simulated: Simulated) -> None:
        alive = sum(pod.role == "worker" for pod in simulated.pods.values())
        count = alive + min(simulated.room(), simulated.row.workers - alive)
        self._planned = simulated.seconds
        if count > alive:
            self._apply(simulated, {"worker": Group(count)})

    def _plan_servers(self, simulated: Simulated) -> None:
        self._planned = simulated.seconds
        if simulated.seconds - self._planned_servers >= 3600 and not self._sampled:
            self._planned_servers, self._sampled = simulated.seconds, True
            groups = self._initial(simulated)
        else:
            groups = self._hot(simulated) or self._workers(simulated)
        if groups:
            self._apply(simulated, groups)
            if "ps" in groups:
                self._records.clear()

    def _means(self, role: str) -> tuple[float, float, float]:
        """Return the mean over records of Σ cores used, the mean used by one, and the largest use in MiB."""
        sums = [sum(use[0] for use in record[role]) for record in self._records]
        each = [use[0] for record in self._records for use in record[role]]
        return mean(sums), mean(each), max(use[1] for use in self._records[-1][role])

    def _initial(self, simulated: Simulated) -> dict[str, Group]:
        workers = len(self._records[-1]["worker"])
        total, _, memory = self._means("ps")
        _, each, _ = self._means("worker")
        per = total / workers
        if per + each <= 0:
            return {}
        wanted = simulated.row.limit_cores / (per + each)
        given = max(use[2] for use in self._records[-1]["ps"])
        count = max(1, min(15, ceil((simulated.row.limit_cores - wanted * each) / given)))
        return {"ps": Group(count, amount(given, floor(1.2 * memory)))}

    def _hot(self, simulated: Simulated) -> dict[str, Group]:
        servers = self._records[-1]["ps"]
        if not any(used / given >= 0.9 for used, _, given, _ in servers if given):
            return {}
        workers = len(self._records[-1]["worker"])
        total, _, _ = self._means("ps")
        _, each, _ = self._means("worker")
        factor = max(1.0, floor(simulated.row.limit_cores / (total / workers + each)) / workers)
        for used, _, given, _ in servers:
            if given and used / given >= 0.9:
                factor = min(factor, 32 / max(used, 1e-9))
        cores = max(max(given, round(used * factor, 1)) for used, _, given, _ in servers)
        if cores <= max(given for _, _, given, _ in servers):
            return {}
        return {"ps": Group(None, amount(cores))}

    def _workers(self, simulated: Simulated) -> dict[str, Group]:
        uses = [use[0] / use[2] for record in self._records for use in record["ps"] if use[2]]
        busiest = max(uses, default=0.0)
        if not busiest or busiest > 0.95 or self._ratio() < 0.2:
            return {}
        now = len(self._records[-1]["worker"])
        _, each, memory = self._means("worker")
        cores, mib = max(each, 1.0), max(floor(1.5 * memory), 1024)
        count: float = floor(now * 0.9 / busiest) if 0.9 / busiest > 1 else now
        taken = sum(use[2] for use in self._records[-1]["ps"])
        taken_mib = sum(use[3] for use in self._records[-1]["ps"])
        row = simulated.row
        count = min(count, (row.limit_cores - taken) / cores, (row.limit_gib * 1024 - taken_mib) / mib)
        count = min(60, max(1, floor(count)))
        return {"worker": Group(count, amount(cores, mib))}

    def _ratio(self) -> float:
        """Return the marginal speed of the workers that came last, relative to that of those before."""
        change = next(
            (
                at
                for at in range(len(self._history) - 1, 0, -1)
                if self._history[at][0] != self._history[at - 1][0]
            ),
            None,
        )
        if change is None:
            return 1.0
        before = [each for each in self._history[:change] if each[0] == self._history[change - 1][0]]
        after = self._history[change:]
        n1, n2 = before[-1][0], after[-1][0]
        v1, v2 = mean(speed for _, speed in before), mean(speed for _, speed in after)
        return ((v2 - v1) / (n2 - n1)) / (v1 / n1) if v1 and n1 and n1 != n2 else 1.0

    def _apply(self, simulated: Simulated, groups: Mapping[str, Group]) -> None:
        self._key += 1
        simulated.apply(f"peer-{self._key}", Change(groups, reason="the peer's"))
