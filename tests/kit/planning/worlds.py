"""Clusters for planners across jobs: by hand, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, note, settings

from elasticjob.brain.fulfilment.draft import Draft
from elasticjob.brain.fulfilment.planner import draft_plan
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
        return draft_plan(self.cluster, self.jobs, self.options, NOW)


def world(
    machines: Mapping[str, Amounts],
    *jobs: Job,
    demands: Iterable[Demand] = (),
    leaving: Mapping[str, Amounts] | None = None,
    options: Options | None = None,
) -> World:
    """Machines with 99 slots, with the bound instances of these jobs, and `leaving` in terminating pods."""
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


def ranged(job: Job) -> int:
    """The next multiple of the step within a job's range, rounded down: what the range alone leaves of it."""
    least, most = bounds(job)
    return min(max(job.now // job.step * job.step, least), most)


def worlds(jobs: int = 6) -> st.SearchStrategy[World]:
    """Heterogeneous clusters: devices, pinned jobs, priorities, steps, jobs outside their range, terminating
    pods, pending pods of others, ranks not bound or on a lost machine, machines that hold too much.

    One number decides all but how many there are of each, so that a thousand worlds take a second.
    """
    some = st.sampled_from
    return st.builds(
        random_world, st.integers(0, 2**32), some((1, 2, 3, 4)), some(range(1, jobs)), some((0, 1, 2))
    )


def on_worlds(test: Callable[[World], None]) -> Callable[[], None]:
    """Run a test on 200 random worlds: to draw a number takes Hypothesis longer than a plan takes to make."""

    @settings(max_examples=25)
    @given(st.integers(0, 2**32))
    def run(number: int) -> None:
        for turn in range(8):
            random = Random(f"{number}/{turn}")
            counts = random.randint(1, 4), random.randint(1, 5), random.randint(0, 2)
            given_ = random_world(random.getrandbits(32), *counts)
            try:
                test(given_)
            except Exception:
                note(f"{given_}")
                raise

    run.__name__ = run.__qualname__ = test.__name__
    run.__doc__ = test.__doc__
    run.__module__ = test.__module__
    return run


def random_world(number: int, machines: int, jobs: int, demands: int) -> World:
    random = Random(number)
    names = [f"m{i}" for i in range(machines)]
    devices = random.sample(({}, {"gpu": 2}, {"gpu": 4}, {"gpu": 4}, {"npu": 2}, {"gpu": 1, "npu": 3}), 2)
    totals = {
        name: {**amount(random.randint(2, 14), random.randint(6, 16), **random.choice(devices)), "pods": 9}
        for name in names
    }
    if random.random() < 0.3:
        totals = dict.fromkeys(names, totals["m0"])
    idle = {name: dict(total) for name, total in totals.items()}
    made: list[Job] = []
    for i in range(jobs):
        key = f"{random.choice('ab')}/j{i}"
        twin = made and random.random() < 0.3
        made.append(_like(made[-1], key) if twin else _job(random, key, totals, idle))
    pods = (
        Demand(f"d/{i}", _request(random, totals), _time(random), _pins(random, names))
        for i in range(demands)
    )
    pods = (replace(pod, priority=random.choice((0, 0, 5, 10))) for pod in pods)
    found = tuple(_machine(random, name, totals[name], idle[name]) for name in names)
    limits = {"cpu": random.choice((Fraction(1), Fraction(97, 100), Fraction(97, 100), Fraction(8, 10)))}
    limits |= {"nvidia.com/gpu": random.choice((Fraction(1), Fraction(1), Fraction(1, 2)))}
    return World(Cluster(found, tuple(pods)), tuple(made), Options(limits, settle=timedelta(0)))


def _like(job: Job, key: str) -> Job:
    return replace(job, key=key, machines=tuple(each and LOST for each in job.machines))


def _machine(random: Random, name: str, total: Amounts, left: Amounts) -> Machine:
    """Part of what is left is used by others; sometimes more than there is."""
    cores = left["cpu"] // 1000
    soon = plus(
        left, amount(max(0, random.choice((0, 0, 0, cores, cores + 1)) - random.randint(0, 2)), 0), -1
    )
    held = amount(random.choice((0, 0, 1, 3)), random.randint(0, 2))
    return Machine(name, total, plus(soon, held, -1) if fits(soon, held) else soon, soon)


def _request(random: Random, totals: Mapping[str, Amounts]) -> Amounts:
    """Cores and memory; often a device that one of the machines has, sometimes two."""
    have = random.choice((*totals.values(),))
    found = {name.rpartition("/")[2]: random.choice((0, 0, 1, 1, 1, 2)) for name in DEVICES if name in have}
    return amount(random.choice((1, 1, 2, 3)), random.choice((1, 1, 2)), **found)


def _time(random: Random) -> datetime:
    return NOW - timedelta(minutes=random.randint(0, 5))


def _pins(random: Random, names: Sequence[str]) -> frozenset[str] | None:
    return random.choice(
        (None, None, None, frozenset(random.sample(names, random.randint(0, min(2, len(names))))))
    )


def _job(random: Random, key: str, totals: Mapping[str, Amounts], idle: dict[str, dict[str, int]]) -> Job:
    """A job whose bound ranks have room; it is taken from `idle`. One of four jobs is new."""
    need, step = _request(random, totals), random.choice((1, 1, 1, 2, 3))
    least = random.choice((0, 1, 1, 2, 3)) // step * step
    most = least + random.randint(0, 8) // step * step + random.choice((0, 0, 0, 1))
    now = random.choice((least, least, random.randint(least, most), most)) // step * step
    if random.random() < 0.05:
        now = random.randint(0, most + 2)
    pins = _pins(random, list(idle))
    unbound = random.choice((1, 0.3, 0.1, 0, 0, 0, 0))
    least = least or int(unbound == 1)
    machines: list[str | None] = []
    while len(machines) < now:
        fitting = [name for name in idle if (pins is None or name in pins) and fits(idle[name], need)]
        if random.random() < unbound:
            machines.append(None)
        elif random.random() < 0.1:
            machines.append(LOST)
        elif not fitting and len(machines) < least:
            machines.append(None)
        elif not fitting:
            del machines[len(machines) // step * step :]
            break
        else:
            name = random.choice(fitting)
            idle[name] = plus(idle[name], need, -1)
            machines.append(name)
    return Job(
        key=key,
        least=least,
        most=most,
        now=len(machines),
        amount=need,
        machines=tuple(machines),
        submitted=_time(random),
        step=step,
        permitted=random.choice((pins, pins, pins, _pins(random, list(idle)))),
        priority=random.choice((0, 0, 0, 5, 10)),
        stays=random.choice(("", "", "", "", "", "a pod is terminating")),
    )
