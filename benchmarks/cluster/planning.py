"""How long one plan takes, on random clusters: of the fulfilment planner, and of the goodput planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from typing import Annotated, Final, TypeVar

from typer import Option

from benchmarks.figures import Sheet, number, quantile, show
from elasticjob.brain.fulfilment import offers
from elasticjob.brain.fulfilment.goodput import place_all
from elasticjob.brain.fulfilment.offers import Candidate
from elasticjob.brain.fulfilment.planner import plan
from elasticjob.brain.fulfilment.state import CPU, Amounts, Cluster, Demand, Job, Machine, Options
from lab.processes import say

T = TypeVar("T")
Count = Annotated[int, Option(min=1)]
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
GIB: Final = 1 << 30
GPU: Final = "nvidia.com/gpu"
CLUSTERS: Final = ((100, 100), (300, 600), (1000, 2000))
"""Jobs, and machines."""
NEW: Final = {"full": 0.2, "empty": 1.0}
"""The share of jobs that are new."""
GPUS: Final = 8
SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 40, 48, 56, 64)


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Return how many seconds a call takes, and its result."""
    began = perf_counter()
    found = call()
    return perf_counter() - began, found


# the fulfilment planner


def planning(clusters: Annotated[int, Option(min=1, help="random clusters of each size")] = 20) -> None:
    """How long one plan of the fulfilment planner takes, against the number of jobs and of machines.

    Machines have 16 to 64 cores, 64 to 256 GiB and no, 4 or 8 devices; jobs have up to 32 instances, four of
    ten with devices, a quarter pinned to some machines, of three priorities. In a *full* cluster a fifth of
    the jobs is new, and nine tenths of what the others leave is in other use; in an *empty* one all are new.
    """
    rows = []
    for jobs, machines in CLUSTERS:
        for name, new in NEW.items():
            seconds, changes, waiting = [], [], []
            for seed in range(clusters):
                given, made = cluster(seed, jobs, machines, new)
                took, found = timed(lambda given=given, made=made: plan(given, made, Options(), NOW))  # type: ignore[misc]
                seconds.append(took)
                changes.append(sum(abs(each.after - each.before) for each in found.deltas))
                waiting.append(len(found.waiting))
            say(f"{jobs} jobs, {machines} machines, {name}")
            times = (f"{quantile(seconds, share):.3f}" for share in (0.5, 0.99))
            figures = (f"{quantile(each, 0.5)}" for each in (changes, waiting))
            rows.append([f"{jobs:,} jobs, {machines:,} machines, {name}", *times, *figures])
    notes = [f"over {clusters} random clusters each"]
    show(Sheet(("", "p50, s", "p99, s", "instances changed", "jobs that wait"), rows, notes))


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
    return Cluster(_machines(totals, idle), tuple(pods)), made


def _machines(totals: dict[str, Amounts], idle: dict[str, dict[str, int]]) -> tuple[Machine, ...]:
    return tuple(Machine(name, total, idle[name], idle[name]) for name, total in totals.items())


def _total(random: Random) -> Amounts:
    cores, gib = random.choice((16, 32, 64)), random.choice((64, 128, 256))
    return {**_amount(cores, gib, random.choice((0, 0, 4, 8))), "pods": 110}


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
        if all(idle[name].get(each, 0) >= quantity for each, quantity in amount.items()):
            _take(idle[name], amount)
            return name
    return None


def _take(room: dict[str, int], amount: Amounts) -> None:
    for each, quantity in amount.items():
        room[each] -= quantity


# the goodput planner


def goodput(jobs: Count = 1000, gpus: Count = 2000, instances: Count = 20) -> None:
    """How long one plan of the goodput planner takes.

    Of jobs that are new, and ten minutes later, when a tenth of them have ended and others came.
    """
    rows = []
    for title, scarce in (("GPUs are scarce", False), ("GPUs and cores are scarce", True)):
        pairs = [plans(Random(seed), jobs, gpus, scarce=scarce) for seed in range(instances)]
        for what, times in zip(("all jobs are new", "a tenth is new"), zip(*pairs, strict=True), strict=True):
            quantiles = [number(1000 * quantile(times, share)) for share in (0.5, 0.99, 1.0)]
            rows.append([f"{title}, {what}", *quantiles])
    title = f"{jobs} jobs, {gpus} GPUs, {instances} instances"
    show(Sheet((title, "p50, ms", "p99, ms", "most, ms"), rows))


def plans(random: Random, jobs: int, gpus: int, *, scarce: bool) -> tuple[float, float]:
    """Return seconds of a plan from nothing, and of the plan after the first was carried out."""
    asked = offers.Options()
    fresh = [_candidate(random, index) for index in range(jobs)]
    empty = _cluster_of_gpus(gpus, [], scarce=scarce)
    first, planned = timed(lambda: place_all(empty, fresh, asked, NOW))
    kept = [_settled(each, planned.places[each.job.key]) for each in fresh if random.random() < 0.9]
    new = [_candidate(random, jobs + index) for index in range(jobs - len(kept))]
    after, later = _cluster_of_gpus(gpus, kept, scarce=scarce), NOW + timedelta(minutes=10)
    second, _ = timed(lambda: place_all(after, [*kept, *new], asked, later))
    return first, second


def _candidate(random: Random, index: int) -> Candidate:
    """Return a job whose speed grows as Amdahl's law says; at most 64 GPUs."""
    serial, most = random.uniform(0.001, 0.2), random.choice((1, 4, 8, 16, 32, 64))
    speeds = {size: size / (1 + serial * (size - 1)) for size in SIZES if size <= most}
    spec = Job(
        key=f"default/job-{index:04}",
        least=1,
        most=most,
        now=0,
        amount={GPU: 1, CPU: random.choice((4000, 8000, 16000))},
        machines=(),
        submitted=NOW - timedelta(seconds=random.randrange(100_000)),
    )
    return Candidate(spec, speeds, done=random.expovariate(1 / 20_000))


def _settled(trained: Candidate, places: tuple[str, ...]) -> Candidate:
    """Return a job after its plan was carried out."""
    return replace(trained, job=replace(trained.job, now=len(places), machines=places, changed=NOW))


def _cluster_of_gpus(gpus: int, running: list[Candidate], *, scarce: bool) -> Cluster:
    """Return machines of 8 GPUs, with few cores for each if these are scarce."""
    total = {GPU: GPUS, CPU: (8 if scarce else 16) * 1000 * GPUS}
    idle = {f"node-{index:04}": dict(total) for index in range(gpus // GPUS)}
    for each in running:
        for name in each.job.machines:
            assert name is not None
            _take(idle[name], each.job.amount)
    return Cluster(_machines(dict.fromkeys(idle, total), idle))
