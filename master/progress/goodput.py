"""Where the time of the job's workers goes: each second of each is productive, or lost to one cause.

1. The account is closed at each tick, and before a node does something else: the time since then goes, for
each worker that the job should have, to what it does now. So all seconds together are those of all workers.
2. In a world that trains, all is productive but what workers lose by their own clocks (`WorkerState.spent`).
3. Nodes that are yet to be made count, too, and so does the time before a master came: that from the creation
of a pod that was there before the first master, and that from the last snapshot of the master before.
4. A suspended job should have no workers: its clock stands.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Final

from elasticjob.api.rpc.nodes import WorkerState
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import Kind
from elasticjob.master.state.training import Account


class Cause(StrEnum):
    """What the time of a worker goes to."""

    PRODUCTIVE = "productive"  # steps that count, evaluations, what the script does between them
    SCHEDULE = "schedule"  # its pod is yet to be made, or waits for a machine
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
AWAY: Final = timedelta(minutes=15)
"""Agents wait so long for a master. If the last snapshot is older, the clocks of the two masters differ."""
CUT: Final = timedelta(seconds=0.5)
"""The API server cuts the time of a pod's creation to whole seconds: by half a second on average."""

Seconds = defaultdict[str, float]
"""Seconds of workers, by cause."""


def close(job: Job, now: datetime) -> Job:
    """Return the job with the time since the last call accounted."""
    account = job.account
    if job.spec.suspended:
        return job.but(account=account.but(at=None)) if account.at else job
    if account.at is None:
        return job.but(account=account.but(at=now, since=now))
    if job.verdict:
        return job.but(account=account.but(at=now))
    seconds = (now - account.at).total_seconds()
    if seconds <= 0:
        return job
    job = of_workers(job)
    found = Seconds(float, job.account.seconds)
    for kind, many in job.nodes.kinds.items():
        if counts(job, kind):
            found[cause_of(job, kind)] += seconds * many * slots(job)
    if missing := absent(job):
        found[Cause.SCHEDULE] += seconds * missing * slots(job)
    if waited := slowness(job) * (found[Cause.PRODUCTIVE] - job.account.seconds.get(Cause.PRODUCTIVE, 0.0)):
        move(found, waited, Cause.STRAGGLER)
    for told, amount in job.account.told.items():
        move(found, amount, Cause(told))
    return job.but(account=job.account.but(at=now, seconds=dict(found), told={}))


def account_new_pod(job: Job, name: str, created: datetime | None) -> Job:
    """Account the time of a new pod before this master, or the first one of this job, began to count."""
    account, kind = job.account, job.nodes[name].kind
    if created is None or account.since is None or job.verdict or not counts(job, kind):
        return job
    seconds = (account.since - created - CUT).total_seconds()
    if seconds <= 0:
        return job
    found = Seconds(float, account.seconds)
    found[cause_of(job, kind)] += seconds * slots(job)
    return job.but(account=account.but(seconds=dict(found)))


def taken_over(account: Account, now: datetime) -> Account:
    """Return the account as the next master continues it: the workers went on meanwhile as they did."""
    trusted = account.at is not None and timedelta(0) <= now - account.at <= AWAY
    return account.but(told={}) if trusted else account.but(told={}, at=now, since=now)


def counts(job: Job, kind: Kind) -> bool:
    """Whether the time of nodes of this kind is accounted."""
    return kind.role in job.spec.roles and not (kind.out or kind.completed)


def absent(job: Job) -> int:
    """Return how many nodes the job should have that are yet to be made, at first or again."""
    spec, sizes = job.spec, job.scaling.placed.sizes
    if spec.replicas is None:
        return 0
    wanted = sum(sizes.get(role, 0) for role in spec.roles) or spec.replicas
    known = job.nodes.count(
        lambda kind: (
            counts(job, kind)
            or (kind.role in spec.roles and (kind.completed or kind.failures > spec.restart_count))
        )
    )
    return max(0, wanted - known)


def slots(job: Job) -> float:
    """Return the workers of a node: those of the last world; one before the first."""
    return job.world.size / len(job.world.members) if job.world else 1.0


def of_workers(job: Job) -> Job:
    """Return the job with what was counted in nodes, before the first world, counted in workers."""
    if job.account.in_workers or not job.world:
        return job
    found = {cause: seconds * slots(job) for cause, seconds in job.account.seconds.items()}
    return job.but(account=job.account.but(seconds=found, in_workers=True))


def cause_of(job: Job, kind: Kind) -> Cause:
    """Return what nodes of a kind do now; PRODUCTIVE stands for all that happens in a world that trains."""
    if job.world and kind.holds == job.world.round and kind.alive:
        if job.health.hang:
            return Cause.HANG
        return Cause.PRODUCTIVE if job.ending is None else change(job)
    if kind.joined:
        return Cause.RENDEZVOUS
    if job.spec.sizes.has_servers and kind.alive:  # each trains for itself
        return Cause.PRODUCTIVE
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
    """Take in what workers of a node have lost since their last report, by their own clocks.

    At the end of a world the wait for the next one has its cause already.
    """
    old = {state.local_rank: state.spent for state in before}
    told = Seconds(float, job.account.told)
    for state in now:
        for cause, amount in spent(old.get(state.local_rank, ()), state.spent).items():
            if amount and cause is not Cause.PRODUCTIVE and not (job.ending and cause is Cause.RESIZE):
                told[cause] += amount
    return job.but(account=job.account.but(told=dict(told))) if told else job


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


def charge(job: Job, seconds: float, to: Cause) -> Job:
    """Return the job with time that was taken to be productive given to a cause."""
    found = Seconds(float, job.account.seconds)
    move(found, seconds, to)
    return job.but(account=job.account.but(seconds=dict(found)))


def move(found: Seconds, seconds: float, to: Cause) -> None:
    """Give productive time to a cause, as far as there is any: nothing is counted twice."""
    amount = min(max(0.0, seconds), found[Cause.PRODUCTIVE])
    if amount:
        found[Cause.PRODUCTIVE] -= amount
        found[to] += amount


def ratio(account: Account) -> float | None:
    """Return the productive share of all time; None before there was any."""
    total = sum(account.seconds.values())
    return account.seconds.get(Cause.PRODUCTIVE, 0.0) / total if total > 0 else None


def lost(account: Account) -> dict[str, float]:
    """Return the lost seconds by cause, every cause among them."""
    return {cause.value: round(account.seconds.get(cause, 0.0), 3) for cause in LOST}
