"""Where the time of the job's workers goes: each second of each is productive, or lost to one cause.

The account is closed at each tick, and before a node does something else: the time since then goes, for each
worker that the job should have, to what it does now. So all seconds together are those of all workers. In a
world that trains, the workers' own clocks (`WorkerState.spent`) divide the time between its causes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from statistics import median
from typing import Final

from elasticjob.api.rpc.nodes import WorkerState
from elasticjob.master.job import Account, Job
from elasticjob.master.roster import Kind


class Cause(StrEnum):
    """What the time of a worker goes to."""

    PRODUCTIVE = "productive"  # steps that count, evaluations, what the script does between them
    SCHEDULE = "schedule"  # its pod waits for a machine
    PULL = "pull"  # its pod starts: images, volumes
    INIT = "init"  # its agent and its process start
    RENDEZVOUS = "rendezvous"  # it waits for the others, at first or after a loss
    DATA = "data"  # it waits for its records
    CHECKPOINT = "checkpoint"  # it copies or writes its state
    RECOMPUTE = "recompute"  # steps that were made before, and lost
    STRAGGLER = "straggler"  # it waits for one that is slow
    HANG = "hang"  # it waits for one that makes no step
    RESIZE = "resize"  # the world changes as planned
    DRAIN = "drain"  # the same, for a machine that goes


LOST: Final = tuple(cause for cause in Cause if cause is not Cause.PRODUCTIVE)
SPENT: Final = (
    Cause.INIT,  # starting
    Cause.PRODUCTIVE,  # outside
    Cause.PRODUCTIVE,  # computing
    Cause.PRODUCTIVE,  # reducing
    Cause.DATA,  # reading
    Cause.RESIZE,  # waiting
    Cause.PRODUCTIVE,  # ended
    Cause.CHECKPOINT,  # saving, a part of the others
)
"""The causes of `WorkerState.spent`, in its order."""


def close(job: Job, now: datetime) -> Job:
    """Return the job with the time since the last call accounted."""
    account = job.account
    if account.at is None or job.verdict:
        return job.but(account=account.but(at=now))
    seconds = (now - account.at).total_seconds()
    if seconds <= 0:
        return job
    found = dict(account.seconds)
    shares = divided(job)
    slots = max(1, job.batch_slots // max(1, job.spec.bounds.hi))
    for kind, many in job.nodes.kinds.items():
        if kind.role in job.spec.roles and not (kind.out or kind.completed):
            cause = cause_of(job, kind)
            for each, share in shares.items() if cause is Cause.PRODUCTIVE else ((cause, 1.0),):
                found[each] = found.get(each, 0.0) + seconds * many * slots * share
    return job.but(account=Account(at=now, seconds=found))


def cause_of(job: Job, kind: Kind) -> Cause:
    """Return what nodes of a kind do now; PRODUCTIVE stands for all that happens in a world that trains."""
    if job.world and kind.holds == job.world.round and kind.alive:
        if job.health.hang:
            return Cause.HANG
        return Cause.PRODUCTIVE if job.ending is None else change(job)
    if kind.joined:
        return Cause.RENDEZVOUS
    if kind.started:
        return Cause.INIT
    return Cause.SCHEDULE if kind.pends else Cause.PULL


def change(job: Job) -> Cause:
    """Return to what the end of the present world is due."""
    ending, spec = job.ending, job.spec
    if ending is None or ending.lost:
        return Cause.RENDEZVOUS
    wanted = spec.replicas if spec.replicas is not None else 0
    rest = job.nodes.count(lambda kind: kind.role in spec.roles and not kind.out)
    return Cause.DRAIN if ending.left and rest < wanted else Cause.RESIZE


def divided(job: Job) -> Mapping[Cause, float]:
    """Return the shares of the time in the world that go to each cause."""
    told = {Cause(cause): amount for cause, amount in job.account.told.items()}
    total = sum(told.values())
    shares = {cause: amount / total for cause, amount in told.items()} if total > 0 else {}
    productive = shares.get(Cause.PRODUCTIVE, 0.0) if shares else 1.0
    waiting = productive * slowness(job)
    return {**shares, Cause.PRODUCTIVE: productive - waiting, Cause.STRAGGLER: waiting}


def slowness(job: Job) -> float:
    """Return the share of a step in which all wait for the workers that were found to be slow."""
    if not job.health.slow or not job.world:
        return 0.0
    nodes = (job.nodes.get(name.rpartition("/")[0]) for name in job.health.slow)
    slow = [state for node in nodes if node and node.told for state in node.told.workers]
    others = [job.nodes[member.node].told for member in job.world.members if member.node in job.nodes]
    busy = [state.busy for told in others if told for state in told.workers if state.busy]
    worst = max((state.busy for state in slow), default=0.0)
    step = max((state.usual for state in slow), default=0.0)
    return min(1.0, max(0.0, worst - median(busy)) / step) if busy and step else 0.0


def heard(job: Job, before: tuple[WorkerState, ...], now: tuple[WorkerState, ...]) -> Job:
    """Take in how workers of a node have spent their time since their last report."""
    old = {state.local_rank: state.spent for state in before}
    told = dict(job.account.told)
    for state in now:
        for cause, amount in spent(old.get(state.local_rank, ()), state.spent).items():
            told[cause] = told.get(cause, 0.0) + amount
    return job.but(account=job.account.but(told=told)) if told else job


def spent(before: tuple[float, ...], after: tuple[float, ...]) -> dict[Cause, float]:
    """Return the time between two reports of a worker by cause; none if another process made the first."""
    if not len(before) == len(after) == len(SPENT):
        return {}
    if any(new < old for old, new in zip(before, after, strict=True)):
        return {}
    found: dict[Cause, float] = {}
    for cause, old, new in zip(SPENT, before, after, strict=True):
        found[cause] = found.get(cause, 0.0) + new - old
    saved = min(found[Cause.CHECKPOINT], found[Cause.PRODUCTIVE])
    return {**found, Cause.PRODUCTIVE: found[Cause.PRODUCTIVE] - saved, Cause.CHECKPOINT: saved}


def moved(job: Job, seconds: float, to: Cause) -> Job:
    """Return the job with time that was taken to be productive given to a cause."""
    found = dict(job.account.seconds)
    amount = min(max(0.0, seconds), found.get(Cause.PRODUCTIVE, 0.0))
    if not amount:
        return job
    found[Cause.PRODUCTIVE] -= amount
    found[to] = found.get(to, 0.0) + amount
    return job.but(account=job.account.but(seconds=found))


def ratio(account: Account) -> float | None:
    """Return the productive share of all time; None before there was any."""
    total = sum(account.seconds.values())
    return account.seconds.get(Cause.PRODUCTIVE, 0.0) / total if total > 0 else None


def lost(account: Account) -> dict[str, float]:
    """Return the lost seconds by cause, every cause among them."""
    return {cause.value: round(account.seconds.get(cause, 0.0), 3) for cause in LOST}
