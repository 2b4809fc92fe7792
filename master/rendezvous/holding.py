"""Nodes whose coming makes worlds fail are held back: those that train keep their world and their restarts.

A script may take worlds of 1, 2 and 4 nodes alone; a node may have another image, or a broken device. The
others see the same: the world fails before its first step, and each of them has lost a restart.

1. A world works once a step was made in it; one of scripts that tell of no steps, once it has run for some
time. Its members are the older ones, and others newcomers, until another world works. An older member stays
one if its pod is made again because a world failed at its start.
2. A world that has newcomers and older members, and in which a worker fails by an error of its own before it
worked, counts against its newcomers: twice if an older member's worker fails, unless a newcomer's was killed
from outside, whose end breaks the others' collectives.
3. A node with two points does not enter a world of that many nodes for some time. It enters one of another
size, and any where no other would reach the minimum. Who holds the model's state is displaced by nobody: then
the world is smaller. A plain script holds nothing of a world that failed at its start, and older members are
waited for, as far as their pods are made again.
4. Where nobody has come, nobody is held back: a finding names the size, if another one worked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.rpc.rendezvous import World
from elasticjob.master.state.condition import Kind
from elasticjob.master.state.job import Job, Proven
from elasticjob.master.state.node import Node, Phase, Spoilt

HELD: Final = 2
"""Points with which a node is held back; worlds in a row that fail at their start until that is said."""
AGAIN: Final = timedelta(minutes=10)
"""After the first such failure, until it may try that size again: the error may have passed by itself."""
LATER: Final = timedelta(days=1)
"""The same after each further one."""
WORKS: Final = timedelta(seconds=10)
"""For which a world of scripts that tell of no steps runs until it counts as one that works."""
CROWD: Final = 1_000
"""Nodes beyond which a new life of an older member is an older member, too: snapshots are limited."""


def blame(job: Job, failed: Node, number: int, now: datetime) -> Job:
    """Count the failure of a worker in round `number` against those that have just come to that world."""
    world, job = job.world, note_world(job, now)
    if world is None or number != world.round or job.proven.round >= number:
        return job
    older = [member for member in world.members if _is_older(job.proven, member.node, member.incarnation)]
    new = {member.node for member in world.members} - {member.node for member in older}
    job = _failed_at_start(job, number, {member.node for member in older})
    if not new or not older:
        is_resized = not new and len(older) != len(job.proven.nodes)
        return _name_size(job, failed, now) if is_resized else job
    if any(_was_killed(job.nodes[name], number) for name in new):
        return job
    points = 1 if failed.name in new else HELD
    for name in sorted(new):
        job = _blame(job, job.nodes[name], len(world.members), points, failed, now)
    return job


def look(job: Job, now: datetime) -> Job:
    """Note a world that works; tell of nodes that are held back, again as well, and close what is over."""
    job = note_world(job, now)
    open_ = {each.about for each in job.health.findings if _is_open(each.reason) and not each.until}
    for each in job.nodes.values() if job.nodes.count(lambda kind: kind.joined and kind.spoilt) else ():
        if each.joined and each.name not in open_ and _still_held(job, each, now):
            job = _holds(job, each, "", now)
            open_.add(each.name)
    if not open_:
        return job
    inside = job.proven.nodes if _works_now(job) else {}
    held = {node.name for name in open_ if (node := job.nodes.get(name)) and _still_held(job, node, now)}
    health = job.health.close(Kind.HELD_BACK, now, held - inside.keys())
    if not job.proven.failed:
        health = health.close(Kind.FAILS_AT_START, now)
    return job if health is job.health else job.but(health=health, version=job.version + 1)


def largest(order: Sequence[Node], sizes: Iterable[int], now: datetime) -> int:
    """Return the largest of these sizes for whose first nodes in `order` that size has not failed, else 0."""
    return next((size for size in sizes if not any(is_held(node, size, now) for node in order[:size])), 0)


def is_held(node: Node, size: int, now: datetime) -> bool:
    """Whether the node may enter no world of so many nodes."""
    known = node.spoilt.get(str(size))
    return known is not None and _counts(known, HELD, now)


def waits_for_older(job: Job) -> bool:
    """Whether a node that has joined came to a world that failed, and older members of it are yet to come."""
    if not (job.proven.failed and job.nodes.count(lambda kind: kind.joined and kind.spoilt)):
        return False
    if job.nodes.count(lambda kind: kind.joined and kind.holds > 0):
        return False
    older = (node for name in job.proven.nodes if (node := job.nodes.get(name)))
    return any(_comes_again(job, node) for node in older)


def sentence(job: Job) -> str:
    """Return why a node waits although there is room, to follow a sentence."""
    held = (why for node in job.nodes.values() if node.alive and node.spoilt and (why := _why(node)))
    return next((f"; {why}" for why in held), "")


def note_world(job: Job, now: datetime) -> Job:
    """Note that the world works, once it does: its members are the older ones from then on."""
    world = job.world
    if world is None or job.proven.round >= world.round or not _works(job, world, now):
        return job
    any_life = len(world.members) > CROWD
    nodes = {member.node: "" if any_life else member.incarnation for member in world.members}
    size = str(len(world.members))
    for name in nodes if job.nodes.count(lambda kind: kind.spoilt) else ():
        node = job.nodes.get(name)
        if node and size in node.spoilt:
            rest = {many: known for many, known in node.spoilt.items() if many != size}
            job = job.put(node.but(spoilt=rest))
    return job.but(proven=Proven(round=world.round, nodes=nodes))


def _works(job: Job, world: World, now: datetime) -> bool:
    """Whether a step was made in the world, or it has run for long enough to be one of plain scripts."""
    if job.training.stepped >= world.round:
        return True
    if job.training.stepped or not job.running or job.proven.last == world.round:
        return False
    if any(node.elastic for member in world.members if (node := job.nodes.get(member.node))):
        return False
    formed = next((each.formed for each in job.training.changes if each.round == world.round), None)
    return formed is not None and now - formed >= WORKS


def _works_now(job: Job) -> bool:
    return job.running is not None and job.running.round == job.proven.round


def _is_older(proven: Proven, name: str, life: str) -> bool:
    return proven.nodes.get(name) in ("", life)


def _failed_at_start(job: Job, number: int, older: set[str]) -> Job:
    """Count the world among those that failed at their start; older members stay so in their next lives."""
    known, size = job.proven, len(job.world.members) if job.world else 0
    if known.last == number:
        return job
    failed = known.failed + 1 if known.size == size else 1
    nodes = known.nodes | dict.fromkeys(older, "")
    return job.but(proven=known.but(nodes=nodes, size=size, failed=failed, last=number))


def _name_size(job: Job, failed: Node, now: datetime) -> Job:
    """Say that worlds of a size fail though nobody has come to them, once two have."""
    many, about = job.proven.failed, _nodes([str(job.proven.size)])
    is_known = any(
        each.reason is Kind.FAILS_AT_START and each.about == about and not each.until
        for each in job.health.findings
    )
    if many < HELD or is_known:
        return job
    why = f"worlds of {about} fail at their start; {failed.name}: {failed.failure}"
    health = job.health.close(Kind.FAILS_AT_START, now).add(Kind.FAILS_AT_START, why, now, about)
    return job.but(health=health, version=job.version + 1)


def _comes_again(job: Job, node: Node) -> bool:
    """Whether a node that has not joined will: it lives, or has failed, and its pod is made again."""
    if node.joined or node.leaving or node.excluded or node.has_succeeded:
        return False
    if node.alive:
        return True
    return job.spec.replicas is not None and node.failures <= job.spec.restart_count


def _still_held(job: Job, node: Node, now: datetime) -> bool:
    """Whether a node is there, and a size of which the job may be is closed to it."""
    if node.leaving or node.excluded or node.has_succeeded or node.phase is Phase.DELETED:
        return False
    return any(int(size) <= job.most and is_held(node, int(size), now) for size in node.spoilt)


def _is_open(kind: Kind) -> bool:
    return kind in (Kind.HELD_BACK, Kind.FAILS_AT_START)


def _counts(known: Spoilt, points: int, now: datetime) -> bool:
    return known.points >= points and now - known.at < (AGAIN if known.points <= HELD else LATER)


def _was_killed(node: Node, number: int) -> bool:
    return node.killed == number or node.beat is None


def _blame(job: Job, node: Node, size: int, points: int, failed: Node, now: datetime) -> Job:
    known, number = node.spoilt.get(str(size)), failed.reported[0] if failed.reported else 0
    fresh = known if known and now - known.at < LATER else Spoilt(points=0, round=0, at=now)
    total = max(fresh.points, points) if fresh.round == number else fresh.points + points
    node = node.but(spoilt={**node.spoilt, str(size): Spoilt(points=total, round=number, at=now)})
    job = job.put(node)
    if total < HELD or total == fresh.points:
        return job
    return _holds(job, node, f"; {failed.name}: {failed.failure}", now)


def _holds(job: Job, node: Node, since: str, now: datetime) -> Job:
    found = job.health.add(Kind.HELD_BACK, f"{_why(node)}{since}", now, node.name)
    return job.but(health=found, version=job.version + 1)


def _why(node: Node) -> str:
    sizes = [size for size, known in node.spoilt.items() if known.points >= HELD]
    return f"{node.name} is held back: worlds of {_nodes(sizes)} failed when it came" if sizes else ""


def _nodes(sizes: Sequence[str]) -> str:
    return "1 node" if list(sizes) == ["1"] else f"{' and '.join(sizes)} nodes"
