"""`planning`: how long one plan takes, against the number of jobs and of machines, on random clusters.

Machines have 16 to 64 cores, 64 to 256 GiB and no, 4 or 8 devices; jobs have up to 32 instances, four of ten
with devices, a quarter pinned to some machines, of three priorities. In a *full* cluster a fifth of the jobs
is new, and nine tenths of what the others leave is in other use; in an *empty* one all jobs are new.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _SubParsersAction
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.figures import Sheet, machine, quantile, show
from elasticjob.brain.fulfilment.planner import plan
from elasticjob.brain.fulfilment.state import Amounts, Cluster, Demand, Job, Machine, Options
from lab.processes import say

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
GIB: Final = 1 << 30
GPU: Final = "nvidia.com/gpu"
SIZES: Final = ((100, 100), (300, 600), (1000, 2000))
"""Jobs, and machines."""
NEW: Final = {"full": 0.2, "empty": 1.0}
"""The share of jobs that are new."""


def cluster(seed: int, jobs: int, machines: int, new: float) -> tuple[Cluster, list[Job]]:
    """Return a cluster and its jobs, a share of them `new`: they have their least size, and no place yet."""
    random = Random(seed)
    totals = {f"m{i:04}": _total(random) for i in range(machines)}
    idle = {name: dict(total) for name, total in totals.items()}
    made = [_job(random, f"default/job-{i}", idle, new) for i in range(jobs)]
    if new < 1:
        for room in idle.values():
            room["cpu"] //= 10
    pods = [
        Demand(
            f"default/pod-{i}", _amount(random.choice((3, 8, 16)), 8), NOW, priority=random.choice((0, 50))
        )
        for i in range(jobs // 5)
    ]
    found = (Machine(name, total, idle[name], idle[name]) for name, total in totals.items())
    return Cluster(tuple(found), tuple(pods)), made


def _total(random: Random) -> Amounts:
    cores, gib, devices = (
        random.choice((16, 32, 64)),
        random.choice((64, 128, 256)),
        random.choice((0, 0, 4, 8)),
    )
    return {**_amount(cores, gib, devices), "pods": 110}


def _amount(cores: int, gib: int, devices: int = 0) -> Amounts:
    return {"cpu": cores * 1000, "memory": gib * GIB, "pods": 1, **({GPU: devices} if devices else {})}


def _job(random: Random, key: str, idle: dict[str, dict[str, int]], new: float) -> Job:
    devices = random.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 4))
    amount = _amount(random.choice((1, 2, 4, 5)), random.choice((2, 4, 8)), devices)
    names = random.sample(list(idle), max(4, len(idle) // 4))
    least = random.randint(1, 4)
    most = least + random.randint(0, 28)
    placed: list[str | None] = [None] * least
    if random.random() >= new:
        placed = [_bound(random.sample(names, 4), idle, amount) for _ in range(random.randint(least, most))]
    return Job(
        key=key,
        least=least,
        most=most,
        now=len(placed),
        amount=amount,
        machines=tuple(placed),
        submitted=NOW - timedelta(seconds=random.randint(0, 9999)),
        permitted=frozenset(names) if random.random() < 0.25 else None,
        priority=random.choice((0, 0, 0, 10, 100)),
    )


def _bound(names: list[str], idle: dict[str, dict[str, int]], amount: Amounts) -> str | None:
    for name in names:
        room = idle[name]
        if all(room.get(each, 0) >= quantity for each, quantity in amount.items()):
            for each, quantity in amount.items():
                room[each] -= quantity
            return name
    return None


def add(commands: _SubParsersAction[ArgumentParser]) -> None:
    """Add the command `planning`."""
    parser = commands.add_parser("planning", help="how long one plan of the fulfilment planner takes")
    parser.add_argument("--clusters", type=int, default=20, help="random clusters of each size")
    parser.set_defaults(run=main)


def main(options: Namespace) -> None:
    """Plan for random clusters of each size, and print how long it takes."""
    rows = []
    for jobs, machines in SIZES:
        for name, new in NEW.items():
            seconds, changes, waiting = [], [], []
            for seed in range(options.clusters):
                given, made = cluster(seed, jobs, machines, new)
                started = perf_counter()
                found = plan(given, made, Options(), NOW)
                seconds.append(perf_counter() - started)
                changes.append(sum(abs(each.after - each.before) for each in found.deltas))
                waiting.append(len(found.waiting))
            say(f"{jobs} jobs, {machines} machines, {name}")
            times = (f"{quantile(seconds, share):.3f}" for share in (0.5, 0.99))
            figures = (f"{quantile(each, 0.5)}" for each in (changes, waiting))
            rows.append([f"{jobs:,} jobs, {machines:,} machines, {name}", *times, *figures])
    show(Sheet(("", "p50, s", "p99, s", "instances changed", "jobs that wait"), rows))
    print(f"over {options.clusters} random clusters each")
    print(machine())
