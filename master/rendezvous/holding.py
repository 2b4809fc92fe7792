"""Nodes whose coming makes worlds fail are held back: those that train keep their world and their restarts.

A script may take worlds of 1, 2 and 4 nodes alone; a node may have another image, or a broken device. The
others see the same: the world fails before its first step, and each of them has lost a restart.

1. A world that has newcomers and older members, and in which a worker fails by an error of its own before any
step was made, counts against its newcomers: twice if an older member's worker fails, unless a newcomer's
was killed from outside, whose end breaks the others' collectives.
2. A node with two points does not enter a world of that many nodes for some time. It enters one of another
size, and any where no other would reach the minimum. Who holds the model's state is held back by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from elasticjob.master.state.condition import Kind
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import Node, Spoilt

HELD: Final = 2
"""Points with which a node is held back."""
AGAIN: Final = timedelta(minutes=10)
"""After the first such failure, until it may try that size again: the error may have passed by itself."""
LATER: Final = timedelta(days=1)
"""The same after each further one."""


def blame(job: Job, failed: Node, number: int, now: datetime) -> Job:
    """Count the failure of a worker in round `number` against those that have just come to that world."""
    world = job.world
    if world is None or number != world.round or job.training.stepped >= number:
        return job
    new = [member.node for member in world.members if member.since == number]
    if not 0 < len(new) < len(world.members) or any(_was_killed(job.nodes[name], number) for name in new):
        return job
    points = 1 if failed.name in new else HELD
    for name in new:
        job = _blamed(job, job.nodes[name], len(world.members), points, failed, now)
    return job


def largest(order: Sequence[Node], sizes: Iterable[int], now: datetime) -> int:
    """Return the largest of these sizes for whose first nodes in `order` that size has not failed, else 0."""
    return next((size for size in sizes if not any(is_held(node, size, now) for node in order[:size])), 0)


def is_held(node: Node, size: int, now: datetime) -> bool:
    """Whether the node may enter no world of so many nodes."""
    known = node.spoilt.get(str(size))
    return known is not None and not node.round and _counts(known, HELD, now)


def _counts(known: Spoilt, points: int, now: datetime) -> bool:
    return known.points >= points and now - known.at < (AGAIN if known.points <= HELD else LATER)


def sentence(job: Job) -> str:
    """Return why a node waits although there is room, to follow a sentence."""
    held = (why for node in job.nodes.values() if node.joined and node.spoilt and (why := _why(node)))
    return next((f"; {why}" for why in held), "")


def _was_killed(node: Node, number: int) -> bool:
    return node.killed == number or node.beat is None


def _blamed(job: Job, node: Node, size: int, points: int, failed: Node, now: datetime) -> Job:
    known, number = node.spoilt.get(str(size)), failed.reported[0] if failed.reported else 0
    fresh = known if known and now - known.at < LATER else Spoilt(points=0, round=0, at=now)
    total = max(fresh.points, points) if fresh.round == number else fresh.points + points
    node = node.but(spoilt={**node.spoilt, str(size): Spoilt(points=total, round=number, at=now)})
    job = job.put(node)
    if total < HELD or total == fresh.points:
        return job
    found = job.health.found(Kind.HELD_BACK, f"{_why(node)}; {failed.name}: {failed.failure}", now)
    return job.but(health=found, version=job.version + 1)


def _why(node: Node) -> str:
    sizes = [size for size, known in node.spoilt.items() if known.points >= HELD]
    many = "1 node" if sizes == ["1"] else f"{' and '.join(sizes)} nodes"
    return f"{node.name} is held back: worlds of {many} failed when it came" if sizes else ""
