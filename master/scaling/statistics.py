"""Records of the running job: what each node uses and how fast the job is, while all its nodes train."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.resources import Bytes, Cores
from elasticjob.master import progress
from elasticjob.master.job import Job, Node
from elasticjob.master.scaling.state import KEPT, Record, Use

EVERY: Final = timedelta(seconds=5)
"""Time between two records."""


def take(job: Job, now: datetime) -> Job:
    """Return the job with a record of now, if it is time for one and all nodes that should train do."""
    records = job.scaling.records
    if (records and now - records[-1].at < EVERY) or (found := _record(job, now)) is None:
        return job
    same = [old for old in records if old.workers == found.workers][-(KEPT - 1) :]
    kept = [old for old in records if old.workers != found.workers or old in same]
    return job.but(scaling=job.scaling.but(records=(*kept, found)))


def _record(job: Job, now: datetime) -> Record | None:
    world, speed = job.running, progress.speed(job.training)
    if world is None or speed is None or job.training.round != world.round:
        return None
    wanted = sum(job.scaling.placed.sizes.get(role, 0) for role in job.spec.roles)
    if wanted and len(world.members) != wanted:
        return None
    uses = tuple(_use(node) for node in job.nodes.values() if node.alive)
    return Record(at=now, nodes=uses, workers=len(world.members), steps=speed.steps, samples=speed.samples)


def _use(node: Node) -> Use:
    given = node.resource
    return Use(
        name=node.name,
        role=node.role,
        cpu=node.usage.cpu if node.usage else 0.0,
        memory=node.usage.memory if node.usage else 0,
        cores=float(Cores.parse(given["cpu"]).value) if "cpu" in given else 0.0,
        bytes=int(Bytes.parse(given["memory"]).value) if "memory" in given else 0,
    )
