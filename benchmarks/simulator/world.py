"""The cluster around one job in virtual time: pods start, run and are killed, plans change what should run.

What the master sees is built as the master builds it: nodes with their use, a world, progress. Plans go
through the operator's own folding.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, Final

from benchmarks.simulator.physics import GIB, Speed
from benchmarks.simulator.rows import Row
from elasticjob.api.resources import Bytes, Cores
from elasticjob.api.rpc.nodes import Progress, Usage
from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.api.sizes.change import Change
from elasticjob.api.sizes.role import Range
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.api.v1alpha1.sizing import facts_of
from elasticjob.controllers.scaleplan.fold import Impossible, fold
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.master.scalers.scaleplan import manifest
from elasticjob.master.scaling.observed import placed_of
from elasticjob.master.state.job import Job, Spec
from elasticjob.master.state.node import Node, Phase
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.scaling import Scaling
from elasticjob.master.state.training import Sample, Training

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
JOB: Final = Key("simulated", "job")
TICK: Final = 10.0
"""Seconds of one turn."""
NOISE: Final = 0.03
"""Standard deviation of a measured speed, relative."""
RESIZE: Final = 1.0
"""Seconds that training stands still when its world changes."""
NODE_GIB: Final = 64.0
"""Memory of a machine: the limit of a pod without one."""
SLOW: Final = 2.0
SLOW_FOR: Final = 300.0
MARGIN: Final = 0.9

Track = tuple[float, int, float]
"""Time, workers that run, steps a second."""


@dataclass
class Pod:
    """One life of a node; `ready` is when it trains, infinite while no machine has room for it."""

    role: str
    index: int
    life: int
    cores: float | None
    gib: float | None
    born: float
    ready: float = inf

    @property
    def name(self) -> str:
        return f"job-{self.role}-{self.index}"


@dataclass
class Outcome:
    """What a run cost. Times in seconds from the start; hours of what was asked for and not used."""

    reached: float = inf  # 90 % of the best speed, from when it was possible
    completed: float = inf
    idle_core_hours: float = 0.0
    idle_gib_hours: float = 0.0
    kills: int = 0
    plans: int = 0
    refused: list[str] = field(default_factory=list)
    track: list[Track] = field(default_factory=list)


class Simulated:
    """The job of a row; `seed` decides the noise, the losses and the slow phases."""

    def __init__(self, row: Row, seed: int) -> None:
        self.row, self.random = row, random.Random(seed)
        self.seconds = 0.0
        self.elastic = job_of(row)
        self.resource = resource_of({}, [])
        self.pods: dict[tuple[str, int], Pod] = {}
        self.oom: list[Pod] = []  # killed since they were last asked for
        self.steps = 0.0
        self.total = row.best.steps * row.hours * 3600
        self.outcome = Outcome()
        self._round, self._members, self._window = 0, tuple[str, ...](), tuple[Sample, ...]()
        self._still = self._slow_until = 0.0
        self._lives: dict[tuple[str, int], int] = {}

    @property
    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    @property
    def over(self) -> bool:
        return self.steps >= self.total

    def apply(self, key: str, change: Change) -> bool:
        """Carry out a change as the operator does; return whether it could be."""
        plan = SCALEPLAN.convert(manifest(JOB, key, change))
        self.outcome.plans += 1
        try:
            folded = fold(self.elastic, self.resource, plan).manifest()
        except Impossible as error:
            self.outcome.refused.append(str(error))
            return False
        self.resource = resource_of(folded["replicaResourceSpecs"], folded["nodes"])
        return True

    def turn(self) -> None:
        """Let TICK seconds pass."""
        self._converge()
        self._place()
        self._lose()
        running = [pod for pod in self.pods.values() if pod.ready <= self.seconds]
        speed = self._speed(running)
        self._kill_what_is_too_large(running)
        self._train(running, speed)
        self._account(running, speed)
        self.seconds += TICK

    def job(self, before: Job) -> Job:
        """Return what the master knows now, with what `before` remembers."""
        used, left = self.used_cores(), {"cpu": str(Cores.parse(max(0.0, round(self.left(), 3))))}
        placed = placed_of(self.resource, ()).but(room={"worker": self.room()}, machine=left)
        world = None
        if self._members:
            members = tuple(member_of(name) for name in self._members if "-worker-" in name)
            world = World(round=self._round, members=members, batch_slots=64)
        training = Training(
            progress=Progress(step=int(self.steps)), round=self._round, at=self.now, window=self._window
        )
        return before.but(
            nodes=Roster(self._node(pod, used.get(pod.name, 0.0)) for pod in self.pods.values()),
            round=self._round,
            world=world,
            training=training,
            scaling=before.scaling.but(placed=placed),
        )

    def first_job(self) -> Job:
        """Return the job of a new master."""
        bounds = Range(least=1, most=self.row.workers)
        return Job(
            spec=Spec(job="job", bounds=bounds, roles=("worker",), sizes=facts_of(self.elastic)),
            scaling=Scaling(),
        )

    # what happens

    def _converge(self) -> None:
        """Make pods that are missing, remove surplus ones, resize in place."""
        wanted: dict[tuple[str, int], tuple[float | None, float | None]] = {}
        own = {node.name: node.resource for node in self.resource.spec.nodes}
        for role, spec in self.resource.spec.replica_resource_specs.items():
            for index in spec.indices:
                amounts = {**spec.resource, **own.get(f"job-{role}-{index}", {})}
                wanted[role, index] = amount_of(amounts)
        for place in [place for place in self.pods if place not in wanted]:
            del self.pods[place]
        for place, (cores, gib) in wanted.items():
            pod = self.pods.get(place)
            if pod is None:
                life = self._lives[place] = self._lives.get(place, -1) + 1
                self.pods[place] = Pod(*place, life, cores, gib, self.seconds)
            else:
                pod.cores, pod.gib = cores, gib

    def _place(self) -> None:
        free = self.row.capacity(self.seconds) - sum(
            self.cores(pod) for pod in self.pods.values() if pod.ready < inf
        )
        for pod in sorted(self.pods.values(), key=lambda pod: (pod.role != "ps", pod.index)):
            if pod.ready == inf and self.cores(pod) <= free:
                free -= self.cores(pod)
                pod.ready = self.seconds + self.row.startup * self.random.uniform(0.7, 1.3)

    def _lose(self) -> None:
        workers = [place for place in self.pods if place[0] == "worker"]
        if self.row.losses and workers and self.random.random() < TICK / self.row.losses:
            del self.pods[self.random.choice(workers)]
        if self.row.slowness and self.random.random() < TICK / self.row.slowness:
            self._slow_until = self.seconds + SLOW_FOR

    def _kill_what_is_too_large(self, running: list[Pod]) -> None:
        for pod in running:
            if self.used_gib(pod) > (NODE_GIB if pod.gib is None else pod.gib):
                self.outcome.kills += 1
                self.oom.append(pod)
                del self.pods[pod.role, pod.index]

    def _speed(self, running: list[Pod]) -> Speed:
        workers = [self.cores(pod) for pod in running if pod.role == "worker"]
        servers = [self.cores(pod) for pod in running if pod.role == "ps"]
        wanted = self.resource.spec.replica_resource_specs.get("ps")
        if self.row.servers and (wanted is None or len(servers) < (wanted.replicas or 1)):
            return Speed(0.0)  # parameters of a server that is away are nowhere else
        slow = SLOW if self.seconds < self._slow_until else 1.0
        return self.row.physics.speed(workers, servers, slow)

    def _train(self, running: list[Pod], speed: Speed) -> None:
        members = tuple(sorted(pod.name for pod in running))
        if members != self._members:
            self._members, self._round = members, self._round + 1
            self._window, self._still = (), RESIZE
        seconds = max(0.0, TICK - self._still)
        self._still = 0.0
        measured = speed.steps * seconds * max(0.5, self.random.gauss(1.0, NOISE))
        self.steps += measured
        sample = Sample(at=self.now, step=int(self.steps * 1000), samples=int(self.steps * 1000))
        self._window = (*self._window, sample)[-6:] if speed.steps else ()

    def _account(self, running: list[Pod], speed: Speed) -> None:
        outcome, hours = self.outcome, TICK / 3600
        used = iter((*speed.servers, *speed.workers))
        for pod in sorted(running, key=lambda pod: (pod.role != "ps", pod.index)):
            outcome.idle_core_hours += max(0.0, self.cores(pod) - next(used, 0.0)) * hours
            if pod.gib is not None:
                outcome.idle_gib_hours += max(0.0, pod.gib - self.used_gib(pod)) * hours
        possible, best = self.row.cores[-1][0], self.row.best.steps
        if outcome.reached == inf and self.seconds >= possible and speed.steps >= MARGIN * best:
            outcome.reached = self.seconds - possible
        if self.over:
            outcome.completed = min(outcome.completed, self.seconds)
        workers = sum(pod.role == "worker" for pod in running)
        outcome.track.append((self.seconds, workers, speed.steps))

    # what is seen

    def room(self) -> int:
        """Return how many more workers would find a machine."""
        spec = self.resource.spec.replica_resource_specs.get("worker")
        cores, _ = amount_of(spec.resource if spec else {})
        return max(0, int(self.left() // (cores or self.row.physics.most)))

    def left(self) -> float:
        """Return the cores that nobody asks for."""
        return self.row.capacity(self.seconds) - sum(self.cores(pod) for pod in self.pods.values())

    def _node(self, pod: Pod, cores: float) -> Node:
        runs = pod.ready <= self.seconds
        usage = Usage(cpu=cores, memory=int(self.used_gib(pod) * GIB)) if runs else None
        given = ({} if pod.cores is None else {"cpu": str(Cores.parse(pod.cores))}) | (
            {} if pod.gib is None else {"memory": str(Bytes(int(pod.gib * GIB)))}
        )
        return Node(
            name=pod.name,
            role=pod.role,
            index=pod.index,
            phase=Phase.RUNNING if runs else Phase.PENDING,
            pod=f"{pod.name}-{pod.life}",
            incarnation=f"{pod.name}-{pod.life}",
            pends=BEGIN + timedelta(seconds=pod.born) if pod.ready == inf else None,
            beat=self.now if runs else None,
            round=self._round if pod.name in self._members else 0,
            usage=usage,
            resource=given,
        )

    def cores(self, pod: Pod) -> float:
        """Return the cores that a pod holds."""
        return self.row.physics.most if pod.cores is None else pod.cores

    def used_gib(self, pod: Pod) -> float:
        """Return the memory that a pod uses."""
        return self.row.memory[pod.role].at(max(0.0, self.seconds - pod.ready))

    def used_cores(self) -> dict[str, float]:
        """Return the cores that each running node uses."""
        running = [each for each in self.pods.values() if each.ready <= self.seconds]
        speed = self._speed(running)
        found: dict[str, float] = {}
        for role, used in (("ps", speed.servers), ("worker", speed.workers)):
            same = sorted((each for each in running if each.role == role), key=lambda each: each.index)
            found |= {each.name: cores for each, cores in zip(same, used, strict=False)}
        return found


def job_of(row: Row) -> ElasticJob:
    """Return a job without sizes and resources."""
    template: Manifest = {"spec": {"containers": [{"name": "main", "image": "elasticjob/trainer"}]}}
    roles: Manifest = {"worker": {"minReplicas": 1, "maxReplicas": row.workers, "template": template}}
    if row.servers:
        roles["ps"] = {"minReplicas": 1, "maxReplicas": row.servers, "template": template}
    strategy = "ParameterServerStrategy" if row.servers else "AllreduceStrategy"
    limits = {"cpu": str(row.limit_cores), "memory": f"{row.limit_gib}Gi"}
    spec = {"distributionStrategy": strategy, "resourceLimits": limits, "replicaSpecs": roles}
    return ELASTICJOB.convert(made("ElasticJob", ELASTICJOB.api_version, spec))


def resource_of(roles: Manifest, nodes: list[Manifest]) -> JobResource:
    """Return the JobResource that says what should run."""
    spec = {"selector": {"name": JOB.name}, "replicaResourceSpecs": roles, "nodes": nodes}
    return JOBRESOURCE.convert(made("JobResource", JOBRESOURCE.api_version, spec))


def made(kind: str, version: str, spec: Manifest) -> Manifest:
    metadata = {"name": JOB.name, "namespace": JOB.namespace, "uid": "1", "generation": 1}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def amount_of(resource: Any) -> tuple[float | None, float | None]:
    """Return cores and GiB, None where nothing is said."""
    cores = float(Cores.parse(resource["cpu"]).value) if "cpu" in resource else None
    gib = float(Bytes.parse(resource["memory"]).value) / GIB if "memory" in resource else None
    return cores, gib


def member_of(name: str) -> Member:
    return Member(node=name, incarnation=name, slots=1, address="127.0.0.1", port=1, since=1)
