"""The health of the workers over time: reports come in, findings and orders come out; pure.

A hang goes through three states: found (each agent writes the stacks of its workers), to be killed (all have
written them, or did not in time), and over: a step was made, or the world ended. A worker that is named and
cannot be killed costs its node.
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime, timedelta
from typing import Final

import msgspec

from elasticjob.api.rpc.nodes import Hang, Report, WorkerPlace
from elasticjob.master.health import hang as hangs
from elasticjob.master.health import straggler
from elasticjob.master.health.hang import Hung, Seen
from elasticjob.master.progress import goodput
from elasticjob.master.progress.goodput import Cause
from elasticjob.master.rendezvous import rules
from elasticjob.master.state.condition import Health, Kind, Suspect, WorkerReport
from elasticjob.master.state.job import Job

STALE: Final = 3.0  # seconds after which a report says nothing about now
STACKS: Final = timedelta(seconds=4)  # that the agents may take for the stacks before workers are killed
UNKILLABLE: Final = timedelta(seconds=15)  # after the order, when the node is given up
EVERY: Final = timedelta(seconds=0.9)  # between two looks for stragglers
STEADY_STEPS: Final = 5  # of being slow before a worker is named
STEADY: Final = timedelta(seconds=1.5)  # the same for short steps
SHORT: Final = 0.03  # seconds of a worker in a step, below which other work of the machine shows
STEADY_IF_SHORT: Final = timedelta(seconds=20)  # longer than such work takes
BUSY: Final = 0.05  # cores of a node that computes


def heard(job: Job, request: Report, now: datetime) -> Job:
    """Take in what a node reports about its workers."""
    node = job.nodes[request.node]
    if not request.workers and node.told is None:
        return job
    told = WorkerReport(at=now, round=request.round, workers=request.workers, stacks=request.stacks)
    job = job.put(node.but(told=told))
    idle = [state.idle for state in request.workers if state.idle is not None]
    if not idle or not job.world or request.round != job.world.round:
        return job
    health = of_round(job.health, request.round, now)
    stepped = now - timedelta(seconds=min(idle))
    if health.stepped is None or stepped > health.stepped:
        health = health.but(stepped=stepped)
    return job if health is job.health else job.but(health=health)


def look(job: Job, now: datetime) -> Job:
    """Apply the rules now: find who hangs and who is slow; go on with a hang that is known."""
    health, world = job.health, job.running
    if world is None or health.round != world.round:
        health = end_world(health, now)
        return job if health is job.health else job.but(health=health, version=job.version + 1)
    if job.leaving:  # who saves is waited for
        return over(job, now) if health.hang else job
    job = follow(job, now) if health.hang else find_hang(job, now)
    if job.health.looked is None or now - job.health.looked >= EVERY:
        job = find_late(find_stragglers(job.but(health=job.health.but(looked=now)), now), now)
        job = job.but(health=job.health.but(idle=idle_since(job, now)))
    return job


def find_hang(job: Job, now: datetime) -> Job:
    """Return the job with a hang in force, if workers hang."""
    limits, stepped = job.spec.limits, job.health.stepped
    if not limits.hang or (stepped and now - stepped <= limits.hang):
        return job
    workers = seen(job, now)
    hung = hangs.find(workers, limits) if workers else None
    if hung is None:
        return job
    number = 1 + max(job.health.numbers, *(stacks(job)))
    places = tuple(place(worker) for worker in hung.workers)
    order = Hang(number=number, round=job.round, reason=hung.sentence, workers=places)
    job = add_finding(job, Kind.HANG, hung.sentence, now, key(hung.workers[0]))
    stood = (now - stepped).total_seconds() if stepped else 0.0
    job = goodput.charge(job, stood * len(workers), Cause.HANG)
    return job.but(health=job.health.but(hang=order, since=now, numbers=number))


def follow(job: Job, now: datetime) -> Job:
    """Go on with the hang in force: order the kill, give the node up, or end it after a step."""
    health = job.health
    hang, since = health.hang, health.since
    if hang is None or since is None:
        return job
    if health.stepped and health.stepped > since:
        return over(job, now)
    if hang.kill:
        if now - since <= UNKILLABLE:
            return job
        for name in {each.node for each in hang.workers}:
            job = rules.lose(job, name, f"{hang.reason}; it could not be killed", now)
        return rules.settle(job, now)
    if now - since <= STACKS and any(number < hang.number for number in stacks(job)):
        return job
    workers = seen(job, now)
    if not still(hang, hangs.find(workers, job.spec.limits) if workers else None):
        return over(job, now) if workers else job
    order = msgspec.structs.replace(hang, kill=True)
    return job.but(health=health.but(hang=order, since=now), version=job.version + 1)


def over(job: Job, now: datetime) -> Job:
    """Return the job without the hang in force."""
    health = job.health.close(Kind.HANG, now).but(hang=None, since=None)
    return job.but(health=health, version=job.version + 1)


def find_late(job: Job, now: datetime) -> Job:
    """Name the workers that have kept the others waiting for long, once until they go on."""
    limits, stepped = job.spec.limits, job.health.stepped
    if not limits.hang or (stepped and now - stepped <= limits.hang and not job.health.late):
        return job
    workers = seen(job, now)
    if not workers:
        return job
    cases = hangs.late(workers, limits)
    for worker, why in cases:
        if key(worker) not in job.health.late:
            job = add_finding(job, Kind.LATE, why, now, key(worker))
    names = tuple(key(worker) for worker, _ in cases)
    if names == job.health.late:
        return job
    return close_findings(job.but(health=job.health.but(late=names)), Kind.LATE, now, names)


def find_stragglers(job: Job, now: datetime) -> Job:
    """Name the workers that have been slow for some steps."""
    workers, health = seen(job, now), job.health
    if not workers or not job.world:
        return job
    usual = {name: suspect.usual for name, suspect in health.suspects.items()}
    ratios = straggler.ratios(workers, job.world.batch_slots, {w: usual.get(key(w), 0.0) for w in workers})
    slow, kept = straggler.slow(ratios), straggler.slow(ratios, straggler.AGAIN)
    told = tuple(name for name in health.slow if name in map(key, kept))
    suspects = {
        key(worker): health.suspects.get(key(worker))
        or Suspect(since=now, step=worker.state.step, usual=worker.state.best)
        for worker in kept
        if worker in slow or key(worker) in told
    }
    for worker, why in slow.items():
        suspect, name = suspects[key(worker)], key(worker)
        steady = STEADY if ratios[worker].usual >= SHORT else STEADY_IF_SHORT
        lasts = worker.state.step - suspect.step >= STEADY_STEPS and now - suspect.since >= steady
        if lasts and name not in told:
            told = (*told, name)
            job = exclude(add_finding(job, Kind.STRAGGLER, why, now, name), worker, why, now)
    if (suspects, told) == (health.suspects, health.slow):
        return job
    return close_findings(
        job.but(health=job.health.but(suspects=suspects, slow=told)), Kind.STRAGGLER, now, told
    )


def exclude(job: Job, worker: Seen, why: str, now: datetime) -> Job:
    """Exclude the node of a straggler, if the job is set so and can go on without it."""
    world = job.running
    if not job.spec.exclude_stragglers or world is None:
        return job
    if len(world.members) - 1 < job.spec.bounds.smallest or worker.node not in job.nodes:
        return job
    job = job.put(job.nodes[worker.node].but(excluded=why))
    job = add_finding(job, Kind.FAULT_NODE, f"{worker.node} takes part no more: {why}", now, worker.node)
    return rules.settle(rules.end(job, f"{worker.node} is excluded: {why}", now, left=(worker.node,)), now)


def add_finding(job: Job, kind: Kind, message: str, now: datetime, about: str = "") -> Job:
    """Return the job with one more finding, which is logged, saved and written to the job's status."""
    return job.but(health=job.health.add(kind, message, now, about), version=job.version + 1)


def close_findings(job: Job, kind: Kind, now: datetime, but: Container[str] = ()) -> Job:
    """Return the job with the findings of a kind closed, but those about some."""
    health = job.health.close(kind, now, but)
    return job if health is job.health else job.but(health=health, version=job.version + 1)


def note_storage_trouble(job: Job, node: str, before: str, error: str, now: datetime) -> Job:
    """Return the job with what a node tells of its last checkpoint: why it is not in storage, "" if it is.

    Each save has a step and a file of its own in its error: they are one trouble, counted.
    """
    if error and error != before:
        health = job.health.count(Kind.CHECKPOINT, f"{node}: {error}", now, node)
        return job.but(health=health, version=job.version + 1)
    if before and not error:
        return close_findings(job, Kind.CHECKPOINT, now, job.nodes.keys() - {node})
    return job


def idle_since(job: Job, now: datetime) -> datetime | None:
    """Return since when no node of the world has computed; None while one does, or says nothing."""
    usages = [job.nodes[member.node].usage for member in job.world.members] if job.world else []
    if not usages or any(usage is None or usage.cpu >= BUSY for usage in usages):
        return None
    return job.health.idle or now


def seen(job: Job, now: datetime) -> list[Seen]:
    """Return all workers of the running world; empty unless each of them was heard of lately."""
    found: list[Seen] = []
    world, first = job.running, 0
    for member in world.members if world else ():
        told = job.nodes[member.node].told
        if told is None or world is None or told.round != world.round or len(told.workers) < member.slots:
            return []
        age = (now - told.at).total_seconds()
        if age > STALE:
            return []
        ordered = sorted(told.workers, key=lambda state: state.local_rank)
        found += [Seen(member.node, first + index, state, age) for index, state in enumerate(ordered)]
        first += member.slots
    return found


def still(hang: Hang, hung: Hung | None) -> bool:
    """Whether workers of a known hang still hang."""
    return bool(hung and {place(worker) for worker in hung.workers} & set(hang.workers))


def stacks(job: Job) -> list[int]:
    """Return the last hang for which each node of the world has written stacks."""
    told = [job.nodes[member.node].told for member in job.world.members] if job.world else []
    return [each.stacks if each else 0 for each in told]


def place(worker: Seen) -> WorkerPlace:
    """Return where a worker is."""
    return WorkerPlace(node=worker.node, local_rank=worker.state.local_rank)


def key(worker: Seen) -> str:
    """Return the key of a worker."""
    return f"{worker.node}/{worker.state.local_rank}"


def of_round(health: Health, number: int, now: datetime) -> Health:
    """Return the health as the world of `number` begins with it: findings stay, suspicions do not."""
    if health.round == number:
        return health
    health = end_world(health, now)
    return Health(round=number, numbers=health.numbers, counts=health.counts, findings=health.findings)


def end_world(health: Health, now: datetime) -> Health:
    """Return the health without a hang in force, and with all findings about workers of a world closed."""
    for kind in (Kind.HANG, Kind.LATE, Kind.STRAGGLER):
        health = health.close(kind, now)
    return health.but(hang=None, since=None) if health.hang else health
