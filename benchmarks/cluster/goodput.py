"""`goodput`: seconds of one plan of the goodput planner against jobs and GPUs, on random instances."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _SubParsersAction
from datetime import UTC, datetime, timedelta
from random import Random
from time import perf_counter
from typing import Final

from benchmarks.figures import Sheet, command, machine, number, quantile, show
from elasticjob.brain.fulfilment.goodput import place_all
from elasticjob.brain.fulfilment.offers import Candidate, Options
from elasticjob.brain.fulfilment.state import CPU, Cluster, Job, Machine

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
GPU: Final = "nvidia.com/gpu"
GPUS: Final = 8
SIZES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 40, 48, 56, 64)


def add(commands: _SubParsersAction[ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "goodput", help="seconds of one plan of the goodput planner", description=__doc__
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=2000)
    parser.add_argument("--instances", type=int, default=20)
    parser.set_defaults(run=main)


def main(options: Namespace) -> None:
    """Time plans of new jobs, and the next plans ten minutes later, when a tenth of the jobs have ended."""
    rows = []
    for title, scarce in (("GPUs are scarce", False), ("GPUs and cores are scarce", True)):
        first, second = [], []
        for seed in range(options.instances):
            new, later = timed(Random(seed), options.jobs, options.gpus, scarce=scarce)
            first.append(1000 * new)
            second.append(1000 * later)
        for what, times in (("all jobs are new", first), ("a tenth is new", second)):
            quantiles = [number(quantile(times, share)) for share in (0.5, 0.99, 1.0)]
            rows.append([f"{title}, {what}", *quantiles])
    title = f"{options.jobs} jobs, {options.gpus} GPUs, {options.instances} instances"
    show(Sheet((title, "p50, ms", "p99, ms", "most, ms"), rows))
    print(f"made by {command('benchmarks.cluster')}")
    print(machine())


def timed(random: Random, jobs: int, gpus: int, *, scarce: bool) -> tuple[float, float]:
    """Return seconds of a plan from nothing, and of the plan after the first was carried out."""
    fresh = [job(random, index) for index in range(jobs)]
    began = perf_counter()
    planned = place_all(cluster(gpus, [], scarce=scarce), fresh, Options(), NOW)
    first = perf_counter() - began
    kept = [settled(each, planned.places[each.job.key]) for each in fresh if random.random() < 0.9]
    new = [job(random, jobs + index) for index in range(jobs - len(kept))]
    after = cluster(gpus, kept, scarce=scarce)
    began = perf_counter()
    place_all(after, [*kept, *new], Options(), NOW + timedelta(minutes=10))
    return first, perf_counter() - began


def job(random: Random, index: int) -> Candidate:
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


def settled(trained: Candidate, places: tuple[str, ...]) -> Candidate:
    """Return a job after its plan was carried out."""
    spec = trained.job
    now = Job(spec.key, spec.least, spec.most, len(places), spec.amount, places, spec.submitted, changed=NOW)
    return Candidate(now, trained.speeds, trained.done, trained.left)


def cluster(gpus: int, running: list[Candidate], *, scarce: bool) -> Cluster:
    """Return machines of 8 GPUs, with few cores for each if these are scarce."""
    cores = (8 if scarce else 16) * 1000 * GPUS
    total = {GPU: GPUS, CPU: cores}
    idle = {f"node-{index:04}": dict(total) for index in range(gpus // GPUS)}
    for each in running:
        for name in each.job.machines:
            assert name is not None
            for resource, amount in each.job.amount.items():
                idle[name][resource] -= amount
    return Cluster(tuple(Machine(name, total, left, left) for name, left in idle.items()))
