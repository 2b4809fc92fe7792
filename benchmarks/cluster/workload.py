"""A workload on a cluster in virtual time: at each tick jobs advance, then the goodput planner decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import fmean
from time import perf_counter
from typing import Final

from benchmarks.cluster.efficiency import configure
from benchmarks.cluster.traces import Application, Submission
from benchmarks.cluster.training import Training
from elasticjob.brain.fulfilment.goodput import place_all
from elasticjob.brain.fulfilment.offers import Candidate, Options
from elasticjob.brain.fulfilment.state import Cluster, Job, Machine

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
NODES: Final = 16
GPU: Final = "nvidia.com/gpu"
GPUS: Final = 4
SIZES: Final = (1, 2, 3, *range(GPUS, NODES * GPUS + 1, GPUS))
"""Sizes that are considered: within one node, and whole nodes."""
ONE_GPU: Final = ("ncf",)
"""Applications that run on one GPU only, as in the published simulation."""


@dataclass(frozen=True)
class Rules:
    """How long a job stands still: `restart` when it begins or none of its nodes stays, `resize` when its
    list of nodes changes otherwise. `tick` is the time between two plans; all in seconds. `known`: the
    planner is told how much work is left."""

    restart: float = 30.0
    resize: float = 30.0
    known: bool = False
    tick: float = 60.0
    options: Options = field(default_factory=Options)


@dataclass
class Outcome:
    """What a run came to: by job hours from submission to end, finish-time fairness, and changes of its
    places; seconds of each plan."""

    hours: dict[str, float] = field(default_factory=dict)
    rho: dict[str, float] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)
    plans: list[float] = field(default_factory=list)
    busy: list[tuple[float, int, int]] = field(default_factory=list)
    """At each tick: hours, jobs that have not ended, GPUs in use."""

    @property
    def mean(self) -> float:
        """The mean completion time, in hours."""
        return fmean(self.hours.values())


def run(submissions: Sequence[Submission], applications: Mapping[str, Application], rules: Rules) -> Outcome:
    """Return what a workload comes to under the goodput planner."""
    waiting = [Training(each, applications[each.application]) for each in submissions]
    running: list[Training] = []
    outcome, now = Outcome(), 0.0
    options = replace(
        rules.options, restart=timedelta(seconds=rules.resize), settle=timedelta(0), suspend=True
    )
    while waiting or running:
        for each in running:
            each.advance(now, rules.tick)
        now += rules.tick
        for each in [each for each in running if each.completed is not None]:
            running.remove(each)
            _end(each, outcome)
        running += [each for each in waiting if each.submission.time <= now]
        waiting = [each for each in waiting if each.submission.time > now]
        if running:
            _plan(running, options, rules, now, outcome)
        outcome.busy.append((now / 3600, len(running), sum(len(each.places) for each in running)))
    return outcome


def _plan(running: Sequence[Training], options: Options, rules: Rules, now: float, outcome: Outcome) -> None:
    """Ask the planner, and do what it says."""
    for each in running:
        each.learn()
    jobs = [trained(each, rules) for each in running]
    began = perf_counter()
    planned = place_all(cluster(running), jobs, options, BEGIN + timedelta(seconds=now))
    outcome.plans.append(perf_counter() - began)
    for each in running:
        name = each.submission.name
        places = planned.places[name]
        if each.model is not None:
            each.fair.append(planned.shares[name].fair)
        if places != each.places:
            each.place(places, now, rules.resize if set(places) & set(each.places) else rules.restart)


def _end(job: Training, outcome: Outcome) -> None:
    name = job.submission.name
    assert job.completed is not None
    seconds = job.completed - job.submission.time
    fair = fmean(job.fair) if job.fair else job.progress / job.trained
    outcome.hours[name] = seconds / 3600
    outcome.rho[name] = seconds * fair / job.progress
    outcome.changes[name] = job.changes


def trained(job: Training, rules: Rules) -> Candidate:
    """Return what a planner knows of a job."""
    at = BEGIN + timedelta(seconds=job.submission.time)
    changed = None if job.changed is None else BEGIN + timedelta(seconds=job.changed)
    spec = Job(
        key=job.submission.name,
        least=1,
        most=1 if job.application.name in ONE_GPU else NODES * GPUS,
        now=len(job.places),
        amount={GPU: 1},
        machines=job.places,
        submitted=at,
        changed=changed,
    )
    left = float(job.application.ends[-1]) - job.progress if rules.known and job.model else None
    return Candidate(spec, speeds(job), done=job.progress, left=left)


def speeds(job: Training) -> dict[int, float]:
    """Return the goodput by number of GPUs, up to twice what the job has measured."""
    if job.model is None or job.noise is None:
        return {}
    key = (id(job.model), job.noise)
    if job.known is None or job.known[0] != key:
        batches = job.batches
        most = min(2 * job.most_measured, NODES * GPUS, batches.most // batches.least_local)
        sizes = [size for size in SIZES if size <= max(1, most)]
        found = configure(job.model, job.noise, batches, [-(-size // GPUS) for size in sizes], sizes)
        job.known = key, {size: float(speed) for size, speed in zip(sizes, found.goodput, strict=True)}
    return job.known[1]


def cluster(running: Sequence[Training]) -> Cluster:
    """Return the machines, with what jobs leave of them."""
    used: dict[str, int] = {}
    for each in running:
        for name in each.places:
            used[name] = used.get(name, 0) + 1
    names = [f"node-{index:02}" for index in range(NODES)]
    idle = {name: {GPU: GPUS - used.get(name, 0)} for name in names}
    return Cluster(tuple(Machine(name, {GPU: GPUS}, idle[name], idle[name]) for name in names))
