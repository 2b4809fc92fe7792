"""Clusters for planners across jobs: random ones, and what a plan makes of them, in plain arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st

from elasticjob.brain.fulfilment.draft import Draft
from elasticjob.brain.fulfilment.planner import drafted
from elasticjob.brain.fulfilment.state import Amounts, Cluster, Demand, Job, Machine, Options

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DEVICES = ("acme.com/npu", "nvidia.com/gpu")
LOST = "lost"
"""A machine that is not ready, and therefore not in the cluster."""


@dataclass(frozen=True)
class World:
    """The arguments of a planner."""

    cluster: Cluster
    jobs: tuple[Job, ...]
    options: Options = Options(settle=timedelta(0))  # noqa: RUF009 - frozen

    def draft(self) -> Draft:
        return drafted(self.cluster, self.jobs, self.options, NOW)


def world(
    machines: Mapping[str, Amounts],
    *jobs: Job,
    demands: Iterable[Demand] = (),
    leaving: Mapping[str, Amounts] | None = None,
    options: Options | None = None,
) -> World:
    """Machines with 99 slots, that hold the bound instances of these jobs, and `leaving` in terminating pods."""
    made = []
    for name, total in machines.items():
        held = [job.amount for job in jobs for machine in job.machines if machine == name]
        whole = {**total, "pods": 99}
        soon = dict(whole)
        for each in held:
            soon = plus(soon, each, -1)
        made.append(Machine(name, whole, plus(soon, (leaving or {}).get(name, {}), -1), soon))
    return World(Cluster(tuple(made), tuple(demands)), jobs, options or Options({}, settle=timedelta(0)))


def job(key: str, least: int, most: int, on: str = "", cpu: int = 1, **more: Any) -> Job:
    """A job with instances of so many cores; `on` has the machine of each rank, - without one."""
    machines = tuple(None if name == "-" else name for name in on.split())
    settings: dict[str, Any] = {"amount": amount(cpu, 0), "submitted": NOW, **more}
    return Job(key, least, most, now=len(machines), machines=machines, **settings)


def amount(cpu: int = 1, memory: int = 1, **devices: int) -> Amounts:
    """An amount in cores and GiB; devices by the last part of their name."""
    named = {name: devices[name.rpartition("/")[2]] for name in DEVICES if name.rpartition("/")[2] in devices}
    return {"cpu": cpu * 1000, "memory": memory << 30, "pods": 1, **named}


def plus(one: Amounts, other: Amounts, times: int = 1) -> dict[str, int]:
    return {name: one.get(name, 0) + times * other.get(name, 0) for name in one.keys() | other.keys()}


def fits(room: Amounts, need: Amounts) -> bool:
    return all(room.get(name, 0) >= quantity for name, quantity in need.items() if quantity)


def bounds(job: Job) -> tuple[int, int]:
    """The least and the most multiple of the step within a job's range."""
    return -(-job.least // job.step) * job.step, job.most // job.step * job.step


@st.composite
def worlds(draw: st.DrawFn, *, jobs: int = 4) -> World:
    """Heterogeneous clusters: devices, pinned jobs, priorities, steps, jobs outside their range, terminating
    pods, pending pods of others, ranks not bound or on a lost machine, machines that hold too much.
    """
    names = [f"m{i}" for i in range(draw(st.integers(1, 4)))]
    totals = {name: draw(capacities()) for name in names}
    idle = {name: dict(total) for name, total in totals.items()}
    made = [
        draw(jobs_on(f"{draw(st.sampled_from('ab'))}/j{i}", idle)) for i in range(draw(st.integers(1, jobs)))
    ]
    demands = [
        Demand(f"d/{i}", draw(requests()), draw(times()), draw(pins(names)), draw(priorities()))
        for i in range(draw(st.integers(0, 2)))
    ]
    machines = []
    for name in names:
        soon = plus(idle[name], amount(draw(st.integers(0, 3)), 0), -1)
        held = amount(draw(st.sampled_from((0, 0, 0, 1, 3))), draw(st.integers(0, 2)))
        now = plus(soon, held, -1) if fits(soon, held) else soon
        machines.append(Machine(name, totals[name], now, soon))
    limits = {"cpu": draw(st.sampled_from((Fraction(1), Fraction(97, 100), Fraction(7, 10))))}
    return World(Cluster(tuple(machines), tuple(demands)), tuple(made), Options(limits, settle=timedelta(0)))


@st.composite
def capacities(draw: st.DrawFn) -> Amounts:
    devices = draw(st.sampled_from(({}, {}, {"gpu": 2}, {"gpu": 4}, {"npu": 2}, {"gpu": 1, "npu": 3})))
    return {**amount(draw(st.integers(2, 12)), draw(st.integers(4, 12)), **devices), "pods": 9}


def requests() -> st.SearchStrategy[Amounts]:
    devices = st.sampled_from(({}, {}, {}, {"gpu": 1}, {"gpu": 2}, {"npu": 1}, {"gpu": 1, "npu": 1}))
    return st.builds(
        lambda cpu, memory, device: amount(cpu, memory, **device),
        st.integers(1, 4),
        st.integers(1, 3),
        devices,
    )


def times() -> st.SearchStrategy[datetime]:
    return st.integers(0, 5).map(lambda minutes: NOW - timedelta(minutes=minutes))


def priorities() -> st.SearchStrategy[int]:
    return st.sampled_from((0, 0, 0, 10))


def pins(names: list[str]) -> st.SearchStrategy[frozenset[str] | None]:
    return st.none() | st.frozensets(st.sampled_from(names), max_size=2)


@st.composite
def jobs_on(draw: st.DrawFn, key: str, idle: dict[str, dict[str, int]]) -> Job:
    """A job whose bound ranks have room; it is taken from `idle`."""
    need = draw(requests())
    least, step = draw(st.integers(0, 3)), draw(st.sampled_from((1, 1, 1, 2, 3)))
    most = least + draw(st.integers(0, 6))
    now = draw(st.integers(least, most) | st.integers(0, most + 2))
    machines: list[str | None] = []
    for wanted in draw(
        st.lists(st.sampled_from((*idle, *idle, *idle, None, LOST)), min_size=now, max_size=now)
    ):
        if wanted in idle:
            if not fits(idle[wanted], need):
                machines.append(None)
                continue
            idle[wanted] = plus(idle[wanted], need, -1)
        machines.append(wanted)
    return Job(
        key=key,
        least=least,
        most=most,
        now=now,
        amount=need,
        machines=tuple(machines),
        submitted=draw(times()),
        step=step,
        permitted=draw(pins(list(idle))),
        priority=draw(priorities()),
        stays=draw(st.sampled_from(("", "", "", "a pod is terminating"))),
    )


@dataclass(frozen=True)
class Place:
    """An instance that got a machine by a plan, in the order in which pods are bound."""

    key: str
    rank: int
    machine: str
    need: Amounts
    permitted: frozenset[str] | None


def names_of(world: World, draft: Draft) -> dict[str, tuple[str | None, ...]]:
    """The machine of each rank after a plan, by the key of the job or of the pod of others."""
    names = draft.rooms.names
    found = {}
    for who in draft.asking:
        places = [None if each is None else LOST if each < 0 else names[each] for each in who.machines]
        found[who.key] = tuple(places)
    return found


def placed(world: World, draft: Draft) -> Iterator[Place]:
    """The instances that have a place by the plan, and had none."""
    before: Mapping[str, tuple[str | None, ...]] = {job.key: job.machines for job in world.jobs}
    of: dict[str, Job | Demand] = {job.key: job for job in world.jobs}
    of |= {pod.key: pod for pod in world.cluster.demands}
    places = names_of(world, draft)
    for who in draft.asking:
        old = before.get(who.key, ())
        for rank, machine in enumerate(places[who.key]):
            if machine is not None and (rank >= len(old) or old[rank] is None):
                yield Place(who.key, rank, machine, of[who.key].amount, of[who.key].permitted)


def released(world: World, draft: Draft) -> Iterator[tuple[str, Amounts]]:
    """The machines that instances leave by the plan, with what they held there."""
    after = {who.key: who.now for who in draft.jobs}
    for job in world.jobs:
        for machine in job.machines[after.get(job.key, job.now) :]:
            if machine is not None and machine != LOST:
                yield machine, job.amount


def rooms_after(world: World, draft: Draft) -> dict[str, dict[str, int]]:
    """What is left of each machine by the plan, once terminating pods are gone."""
    rooms = {machine.name: dict(machine.soon) for machine in world.cluster.machines}
    for machine, held in released(world, draft):
        rooms[machine] = plus(rooms[machine], held)
    for place in placed(world, draft):
        rooms[place.machine] = plus(rooms[place.machine], place.need, -1)
    return rooms


def used(cluster: Cluster, rooms: Mapping[str, Amounts]) -> Counter[str]:
    """What is used of each resource."""
    found: Counter[str] = Counter()
    for machine in cluster.machines:
        for name, total in machine.total.items():
            found[name] += total - rooms[machine.name].get(name, 0)
    return found


def most_used(world: World) -> dict[str, int]:
    """The limit of each resource."""
    found: Counter[str] = Counter()
    for machine in world.cluster.machines:
        found.update(machine.total)
    return {name: total * world.options.limits.get(name, Fraction(1)) // 1 for name, total in found.items()}


def applied(world: World, draft: Draft, *, gone: bool, stays: bool = True) -> World:
    """The world after a plan: pods are bound that fit, pods that leave are gone, or still terminating.

    A job that shrinks may not grow while its pods terminate, with `stays`.
    """
    idle = {machine.name: dict(machine.idle) for machine in world.cluster.machines}
    soon = {machine.name: dict(machine.soon) for machine in world.cluster.machines}
    for machine, held in released(world, draft):
        soon[machine] = plus(soon[machine], held)
        if gone:
            idle[machine] = plus(idle[machine], held)
    pending = set()
    for place in placed(world, draft):
        if place.machine == LOST or fits(idle[place.machine], place.need):
            idle[place.machine] = plus(idle[place.machine], place.need, -1)
            soon[place.machine] = plus(soon[place.machine], place.need, -1)
        else:
            pending.add((place.key, place.rank))
    places = names_of(world, draft)
    machines = tuple(
        replace(each, idle=idle[each.name], soon=soon[each.name]) for each in world.cluster.machines
    )
    demands = tuple(
        each for each in world.cluster.demands if places[each.key] == (None,) or (each.key, 0) in pending
    )
    jobs = []
    for job in world.jobs:
        if job.key not in places:
            jobs.append(job)
            continue
        ranks = tuple(
            None if (job.key, rank) in pending else machine for rank, machine in enumerate(places[job.key])
        )
        why = "a pod is terminating" if stays and len(ranks) < job.now else job.stays
        jobs.append(replace(job, now=len(ranks), machines=ranks, stays=why))
    return replace(world, cluster=Cluster(machines, demands), jobs=tuple(jobs))


def sizes(deltas: Iterable[object]) -> list[tuple[object, ...]]:
    """Deltas, or waiting entries, without their sentences."""
    return [tuple(vars(each).values())[:-1] for each in deltas]
