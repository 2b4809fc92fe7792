"""A plan while it is made: jobs with their places, the room that is left, and what was taken from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from elasticjob.brain.fulfilment.places import Need, Rooms
from elasticjob.brain.fulfilment.state import CPU, MEMORY, Cluster, Demand, Job, Options

ELSEWHERE: Final = -1
"""The machine of an instance that runs on one that is not ready, or is cordoned: it needs no room of ours."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why instances were taken: `sentence` follows the words `gives up 2`."""

    of: str
    """The key of whom they were taken for, or the resource that is above its limit."""
    sentence: str


@dataclass(eq=False, slots=True)
class Entry:
    """A job in the draft; or somebody else's pending pod, which is a job of exactly one instance."""

    key: str
    least: int
    most: int
    step: int
    now: int
    need: Need
    machines: list[int | None]
    permitted: frozenset[int] | None
    priority: int
    submitted: datetime
    job: Job | None
    size: int = 0
    """Its place in the order of sizes of one instance: devices, cpu, memory; then by key."""
    takes: list[Take] = field(default_factory=list)
    ranged: str = ""
    """Why its size was outside its range."""
    withdrawn: int = 0
    grown: int = 0

    @property
    def score(self) -> float:
        """Fulfilment: 0 at least, 1 at most. Equal fractions of integers are equal floats."""
        return (self.now - self.least) / (self.most - self.least) if self.most > self.least else 1.0

    @property
    def grows(self) -> bool:
        """Whether it may have one step more."""
        most = min(self.most, self.job.ceiling) if self.job else self.most
        return self.now + self.step <= most

    @property
    def bound(self) -> int:
        """Instances that have a place."""
        return self.now - self.machines.count(None)

    @property
    def shrunk(self) -> bool:
        """Whether this plan takes instances away, so that pods will be terminating."""
        return self.job is not None and self.now < self.job.now

    @property
    def grows_after(self) -> tuple[int, float, int]:
        """The order of growth, who is first is least; the last one gives way first."""
        return (-self.priority, self.score, self.size)

    @property
    def gives_after(self) -> tuple[int, float, int]:
        """The order of giving way: `grows_after` reversed."""
        return (self.priority, -self.score, -self.size)

    def can_give(self) -> bool:
        """Whether it keeps its minimum without the highest step: instances, and bound ones."""
        kept = self.now - self.step
        return kept >= self.least and kept - self.machines[:kept].count(None) >= self.least

    def givable(self) -> list[int]:
        """Return the machines of all instances that it could give, one by one."""
        now, spare = self.now, self.bound - self.least
        while now - self.step >= self.least:
            spare -= self.step - self.machines[now - self.step : now].count(None)
            if spare < 0:
                break
            now -= self.step
        return [each for each in self.machines[now:] if each is not None and each != ELSEWHERE]


@dataclass(eq=False, slots=True)
class Take:
    """A step that was taken from a job, with the machines that its ranks left."""

    who: Entry
    machines: list[int | None]
    cause: Cause


class Draft:
    """The jobs that are planned and the pods of others, the rooms, and the takes in their order."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], options: Options) -> None:
        requested = [*(job.amount for job in jobs), *(pod.amount for pod in cluster.demands)]
        self.rooms = Rooms(cluster.machines, requested)
        self.limits = self.rooms.limits(options)
        self.ceilings = self.rooms.limits(options, options.band)
        self.jobs = [found for job in jobs if (found := self._job(job)) is not None]
        self.jobs.sort(key=self._size)
        for size, each in enumerate(self.jobs):
            each.size = size
        self.asking = [*self.jobs, *(self._demand(each) for each in cluster.demands)]
        self.asking.sort(key=lambda each: (-each.priority, each.submitted, each.key, each.job is None))
        self.takes: list[Take] = []
        self.grown: list[Entry] = []
        self.places: dict[str, int] = {}
        """For how many instances there would be a place, of those that wait in vain."""
        self.steps = 0
        self.changes = 0
        """Grows whenever room or a job changes."""

    def cut(self, who: Entry, now: int) -> list[int | None]:
        """Drop the ranks from `now` on; return the machines that they leave."""
        self.changes += 1
        left = who.machines[now:]
        del who.machines[now:]
        who.now = now
        self.leave(who, left)
        return left

    def extend(self, who: Entry, machines: Sequence[int | None]) -> None:
        """Add ranks at the top, each on a machine where it has its room, or without a place."""
        self.changes += 1
        self.steps += 1
        who.machines += machines
        who.now += len(machines)

    def bind(self, who: Entry, machines: Sequence[int]) -> None:
        """Give the lowest ranks without a place these machines, where they have their room."""
        self.changes += 1
        for machine in machines:
            self.steps += 1
            who.machines[who.machines.index(None)] = machine

    def take(self, who: Entry, cause: Cause) -> Take:
        """Take the highest step of a job."""
        self.steps += 1
        take = Take(who, self.cut(who, who.now - who.step), cause)
        who.takes.append(take)
        self.takes.append(take)
        return take

    def give_back(self, take: Take) -> None:
        """Undo the last take."""
        self.takes.remove(take)
        take.who.takes.remove(take)
        for machine in take.machines:
            if machine is not None and machine != ELSEWHERE:
                self.rooms.put(machine, take.who.need)
        self.extend(take.who, take.machines)

    def find(self, who: Entry, number: int, *, soon: bool) -> list[int] | None:
        """Return machines for some instances, which have their room then; None unless there is one for each.

        All instances of a job are alike, so that filling one machine after the other finds a place for all
        wherever there is one.
        """
        found: list[int] = []
        for _ in range(number):
            machine = self.rooms.best(who.need, who.permitted, soon=soon)
            if machine is None:
                self.leave(who, found)
                return None
            self.rooms.put(machine, who.need)
            found.append(machine)
        return found

    def leave(self, who: Entry, machines: Sequence[int | None]) -> None:
        """Take the room back that instances have on these machines."""
        for machine in machines:
            if machine is not None and machine != ELSEWHERE:
                self.rooms.free(machine, who.need)

    def _job(self, job: Job) -> Entry | None:
        """None if no multiple of its step is within its range: it stays as it is, and is use like others."""
        step = max(1, job.step)
        least, most = -(-max(0, job.least) // step) * step, job.most // step * step
        if least > most:
            return None
        known = self.rooms.position
        machines = [None if name is None else known.get(name, ELSEWHERE) for name in job.machines[: job.now]]
        return Entry(
            key=job.key,
            least=least,
            most=most,
            step=step,
            now=job.now,
            need=self.rooms.amounts(job.amount),
            machines=machines + [None] * (job.now - len(machines)),
            permitted=self.rooms.machines_by_name(job.permitted),
            priority=job.priority,
            submitted=job.submitted,
            job=job,
        )

    def _demand(self, pod: Demand) -> Entry:
        need, permitted = self.rooms.amounts(pod.amount), self.rooms.machines_by_name(pod.permitted)
        return Entry(pod.key, 1, 1, 1, 1, need, [None], permitted, pod.priority, pod.submitted, None)

    def _size(self, who: Entry) -> tuple[list[int], int, int, str]:
        quantities = dict(who.need)
        resources = self.rooms.resources
        devices = [quantities.get(i, 0) for i in range(self.rooms.devices)]
        cpu, memory = (
            quantities.get(resources.index(name), 0) if name in resources else 0 for name in (CPU, MEMORY)
        )
        return devices, cpu, memory, who.key
