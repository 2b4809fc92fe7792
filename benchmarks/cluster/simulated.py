"""A cluster in virtual time: machines, pods that start and terminate, a scheduler, jobs and a Deployment.

The scheduler is that of Kubernetes without its details: pods by priority, then by age, each on the permitted
machine with the most cpu left. It evicts nobody. One turn is one second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from typing import Final

from elasticjob.brain.fulfilment.planner import plan
from elasticjob.brain.fulfilment.state import Amounts, Cluster, Demand, Job, Machine, Options, Plan

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
EVERY: Final = 5
"""Seconds after which there is a plan, though nothing has changed."""
STARTS: Final = (4, 6)
TERMINATES: Final = 2
"""Seconds."""


@dataclass(eq=False, slots=True)
class Pod:
    """A pod; seconds since the beginning, None for what has not happened."""

    name: str
    amount: Amounts
    priority: int
    created: int
    machine: str | None = None
    runs: int | None = None
    ends: int | None = None

    def running(self, now: int) -> bool:
        return self.runs is not None and self.runs <= now and self.ends is None


@dataclass(eq=False, slots=True)
class Training:
    """A job: trainers by rank, and the pods of its other roles."""

    key: str
    least: int
    most: int
    amount: Amounts
    submitted: int
    others: list[Pod]
    trainers: list[Pod] = field(default_factory=list)
    leaving: list[Pod] = field(default_factory=list)
    changed: int | None = None
    withdrawn: int = 0
    stopped: int = 0
    """Trainers that ran, or were starting, and had to leave."""
    ran: int | None = None
    """When its first trainer ran."""

    @property
    def score(self) -> float:
        return (len(self.trainers) - self.least) / (self.most - self.least) if self.most > self.least else 1.0


class Simulated:
    """The cluster; `seconds` is now."""

    def __init__(self, machines: Sequence[Machine], seed: int, planner: Options | None) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.idle = {machine.name: dict(machine.idle) for machine in machines}
        self.random = Random(seed)
        self.planner = planner
        self.seconds = 0
        self.jobs: list[Training] = []
        self.services: list[Pod] = []
        self.served: list[Pod] = []
        """All pods of services that there ever were."""
        self.terminating: list[Pod] = []
        self.pending: list[Pod] = []
        self.plans: list[float] = []
        """The seconds that each plan took, of real time."""
        self._dirty = True

    def submit(self, key: str, least: int, most: int, amount: Amounts, others: Iterable[Amounts]) -> None:
        """Submit a job, which begins with its least number of trainers."""
        pods = [self._create(f"{key}-{i}", each) for i, each in enumerate(others)]
        job = Training(key, least, most, amount, self.seconds, pods)
        self.jobs.append(job)
        self._resize(job, least)

    def serve(self, count: int, amount: Amounts, priority: int) -> None:
        """Set the number of pods of the Deployment; the youngest leave."""
        while len(self.services) > count:
            self._end(self.services.pop())
        while len(self.services) < count:
            pod = self._create(f"nginx-{len(self.served)}", amount, priority)
            self.services.append(pod)
            self.served.append(pod)

    def turn(self) -> None:
        """Let one second pass: pods end, the plan is made, pods are bound."""
        for pod in [each for each in self.terminating if each.ends is not None and each.ends <= self.seconds]:
            self.terminating.remove(pod)
            self._give(pod, 1)
        for job in self.jobs:
            job.leaving = [each for each in job.leaving if each in self.terminating]
            if job.ran is None and any(each.running(self.seconds) for each in job.trainers):
                job.ran = self.seconds
        if self.planner is not None and (self._dirty or self.seconds % EVERY == 0):
            self._dirty = False
            self._apply(self._plan(self.planner))
        self._schedule()
        self.seconds += 1

    def used(self, resource: str) -> float:
        """Return the share of a resource that running pods request, system pods included."""
        total = sum(machine.total[resource] for machine in self.machines.values())
        system = total - sum(machine.idle[resource] for machine in self.machines.values())
        pods = [*self.services, *(pod for job in self.jobs for pod in (*job.trainers, *job.others))]
        return (system + sum(pod.amount[resource] for pod in pods if pod.running(self.seconds))) / total

    def _plan(self, options: Options) -> Plan:
        held: dict[str, list[Pod]] = {}
        for pod in self.terminating:
            held.setdefault(pod.machine or "", []).append(pod)
        machines = tuple(
            replace(machine, idle=dict(self.idle[name]), soon=self._soon(name, held.get(name, ())))
            for name, machine in self.machines.items()
        )
        trainers = {id(pod) for job in self.jobs for pod in job.trainers}
        demands = tuple(
            Demand(pod.name, pod.amount, BEGIN + timedelta(seconds=pod.created), priority=pod.priority)
            for pod in self.pending
            if id(pod) not in trainers
        )
        jobs = [self._job(job) for job in self.jobs]
        started = perf_counter()
        found = plan(Cluster(machines, demands), jobs, options, BEGIN + timedelta(seconds=self.seconds))
        self.plans.append(perf_counter() - started)
        return found

    def _soon(self, name: str, leaving: Iterable[Pod]) -> Amounts:
        room = dict(self.idle[name])
        for pod in leaving:
            room = {each: left + pod.amount.get(each, 0) for each, left in room.items()}
        return room

    def _job(self, job: Training) -> Job:
        machines = tuple(pod.machine for pod in job.trainers)
        if None not in machines:
            job.withdrawn = 0
        return Job(
            key=job.key,
            least=job.least,
            most=job.most,
            now=len(job.trainers),
            amount=job.amount,
            machines=machines,
            submitted=BEGIN + timedelta(seconds=job.submitted),
            changed=None if job.changed is None else BEGIN + timedelta(seconds=job.changed),
            withdrawn=job.withdrawn,
            stays="a pod is terminating" if job.leaving else "",
        )

    def _apply(self, found: Plan) -> None:
        jobs = {job.key: job for job in self.jobs}
        for delta in found.deltas:
            job = jobs[delta.job]
            if delta.after < delta.before and all(pod.machine is None for pod in job.trainers[delta.after :]):
                job.withdrawn += 1
            self._resize(job, delta.after)
            job.changed = self.seconds

    def _resize(self, job: Training, now: int) -> None:
        while len(job.trainers) > now:
            pod = job.trainers.pop()
            if pod.machine is not None:
                job.stopped += 1
                job.leaving.append(pod)
            self._end(pod)
        while len(job.trainers) < now:
            job.trainers.append(self._create(f"{job.key}-trainer-{len(job.trainers)}", job.amount))

    def _create(self, name: str, amount: Amounts, priority: int = 0) -> Pod:
        pod = Pod(name, amount, priority, self.seconds)
        self.pending.append(pod)
        self._dirty = True
        return pod

    def _end(self, pod: Pod) -> None:
        self._dirty = True
        if pod.machine is None:
            self.pending.remove(pod)
            return
        pod.ends = self.seconds + TERMINATES
        self.terminating.append(pod)

    def _schedule(self) -> None:
        vain = set[int]()
        for pod in sorted(self.pending, key=lambda each: (-each.priority, each.created)):
            kind = id(pod.amount)
            if kind in vain:
                continue
            fitting = [
                name
                for name, room in self.idle.items()
                if all(room[each] >= quantity for each, quantity in pod.amount.items())
            ]
            if not fitting:
                vain.add(kind)
                continue
            pod.machine = max(fitting, key=lambda name: self.idle[name]["cpu"])
            pod.runs = self.seconds + self.random.randint(*STARTS)
            self._give(pod, -1)
            self.pending.remove(pod)
            self._dirty = True

    def _give(self, pod: Pod, sign: int) -> None:
        room = self.idle[pod.machine or ""]
        for each, quantity in pod.amount.items():
            room[each] += sign * quantity
        self._dirty = True
