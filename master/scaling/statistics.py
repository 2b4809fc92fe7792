"""Records of the running job: what each node uses and how fast the job is, while all its nodes train."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from elasticjob.api.resources import Bytes, Cores
from elasticjob.api.roles import PS
from elasticjob.api.sizes.facts import Mode, Sample, Use
from elasticjob.master.progress import progress
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import Node
from elasticjob.master.state.scaling import Scaling
from elasticjob.sizing.demand import Demand, need_of
from elasticjob.sizing.measures import KEPT

SIZES: Final = 32
"""Numbers of nodes of which records are kept."""
NAMED: Final = 64
"""Nodes of a role that a record names: of more, those with the most memory."""


def take(job: Job, now: datetime) -> Job:
    """Return the job with a record of now, if it is time for one and all nodes that should train do."""
    scaling = job.scaling
    if job.spec.sizes.mode is Mode.MANUAL:
        return job
    if scaling.records and now - scaling.records[-1].at < job.spec.limits.pace.record:
        return job
    applied = sum(ledger.applied for ledger in job.shards.datasets.values())
    if (found := _record(job, applied, now)) is None:
        return job if scaling.since is None else job.but(scaling=scaling.but(since=None))
    every = job.spec.limits.pace.point
    demand = {role: need_of(scaling.demand.get(role, Demand()), found, role, every) for role in _roles(found)}
    scaling = _with(scaling, found).but(applied=applied, demand=scaling.demand | demand)
    return job.but(scaling=scaling)


def _roles(record: Sample) -> Iterable[str]:
    return dict.fromkeys(use.role for use in record.nodes)


def _with(scaling: Scaling, found: Sample) -> Scaling:
    """Return it with a record; those before parameter servers changed tell nothing any more."""
    last = scaling.records[-1] if scaling.records else None
    changed = last is None or (last.workers, servers_of(last)) != (found.workers, servers_of(found))
    before = scaling.records if last and servers_of(last) == servers_of(found) else ()
    records = tuple(_keep((*before, found)))
    return scaling.but(records=records, since=found.at if changed else scaling.since or found.at)


def servers_of(record: Sample) -> frozenset[str]:
    """Return the names of the parameter servers of a record."""
    return frozenset(use.name for use in record.nodes if use.role == PS)


def _keep(records: tuple[Sample, ...]) -> Iterable[Sample]:
    """The newest of each of the newest sizes, oldest first. Only the newest keep what each node uses."""
    counts = dict[int, int]()
    kept = list[Sample]()
    for record in reversed(records):
        if record.workers not in counts and len(counts) == SIZES:
            continue
        counts[record.workers] = counts.get(record.workers, 0) + 1
        if counts[record.workers] <= KEPT:
            kept.append(record if len(kept) < KEPT else record.but(nodes=_servers(record)))
    return reversed(kept)


def _servers(record: Sample) -> tuple[Use, ...]:
    return tuple(use for use in record.nodes if use.role == PS)


def _record(job: Job, applied: int, now: datetime) -> Sample | None:
    speed = _speed(job, applied, now)
    if speed is None or (workers := _training(job)) is None:
        return None
    uses = [use_of(node) for node in job.nodes.values() if node.alive]
    return Sample(at=now, nodes=_by_name(uses), workers=workers, steps=speed.steps, samples=speed.samples)


def _speed(job: Job, applied: int, now: datetime) -> progress.Speed | None:
    """The speed of the running world; of workers that step alone, that of their shards."""
    world, scaling = job.running, job.scaling
    if world is not None and job.training.round == world.round:
        return progress.speed(job.training)
    if world is not None or not job.spec.sizes.has_servers:
        return None
    if not scaling.records or applied < scaling.applied:
        return progress.Speed(0.0, 0.0) if applied else None
    seconds = (now - scaling.records[-1].at).total_seconds()
    return progress.Speed(0.0, (applied - scaling.applied) / seconds) if seconds > 0 else None


def _training(job: Job) -> int | None:
    """Return how many workers and chiefs train; None unless all that should do, and all servers run."""
    sizes, world = job.scaling.placed.sizes, job.running
    wanted = sum(sizes.get(role, 0) for role in job.spec.roles)
    alive = job.nodes.count(lambda kind: kind.alive and kind.role in job.spec.roles)
    train = len(world.members) if world else alive
    servers = job.nodes.count(lambda kind: kind.alive and kind.role == PS)
    whole = train > 0 and (not wanted or train == wanted) and servers >= sizes.get(PS, 0)
    return train if whole else None


def _by_name(uses: list[Use]) -> tuple[Use, ...]:
    roles = dict.fromkeys(use.role for use in uses)
    each = ([use for use in uses if use.role == role] for role in roles)
    return tuple(use for of_role in each for use in _largest(of_role))


def _largest(uses: list[Use]) -> list[Use]:
    return uses if len(uses) <= NAMED else sorted(uses, key=lambda use: -use.memory)[:NAMED]


def use_of(node: Node) -> Use:
    """Return what a node has and uses."""
    given = node.resource
    return Use(
        name=node.name,
        role=node.role,
        cpu=node.usage.cpu if node.usage else 0.0,
        memory=node.usage.memory if node.usage else 0,
        cores=float(Cores.parse(given["cpu"]).value) if "cpu" in given else 0.0,
        bytes=int(Bytes.parse(given["memory"]).value) if "memory" in given else 0,
        peak=node.peak or 0,
    )
