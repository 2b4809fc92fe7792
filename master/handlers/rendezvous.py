"""Requests by which nodes enter and leave worlds. The rules are in `rules.py`."""

from __future__ import annotations

from datetime import datetime, timedelta

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.rendezvous import Join, Leave, Recovery, World
from elasticjob.master.handlers import incarnations
from elasticjob.master.rendezvous import rules
from elasticjob.master.state.errors import Refused, Stale, Stopping
from elasticjob.master.state.job import Job, Turn
from elasticjob.master.state.node import Node, Waiting


def join(job: Job, request: Join, now: datetime) -> Turn[World]:
    """Record that the node waits for the next world; repeating the request returns the same world."""
    _refuse_useless(job)
    job = incarnations.enter(job, request, now)
    job = incarnations.claim(job, request.node, request.after, now)
    if world := answer(job, request):
        return Turn(job, world)
    node = job.nodes[request.node]
    if node.excluded and not (node.leaving or node.finished or node.failed):
        return Turn(job.put(node.but(beat=now)))
    if node.leaving or node.ended:
        raise Refused(f"{node.name} {_why_not(node)}: it enters no world any more")
    elastic = request.recovery is Recovery.IN_PROCESS
    job = job.put(node.but(beat=now, joined=_join(job, node, request, now), elastic=elastic))
    job = rules.settle(_end_own_world(job, request, now), now)
    return Turn(job, answer(job, request))


def answer(job: Job, request: Join) -> World | None:
    """Return the world for `request`, None while there is none."""
    _refuse_useless(job)
    node = incarnations.sender_of(job, request)
    world = job.world
    return world if world and world.round > request.after and node.round == world.round else None


def withdraw(job: Job, request: Join, now: datetime) -> Job:
    """Take the join back: the client disconnected, and would not receive the world."""
    node = job.nodes.get(request.node)
    if node is None or node.incarnation != request.incarnation or not node.joined:
        return job
    return rules.settle(job.put(node.but(joined=None)), now)


def leave(job: Job, request: Leave, now: datetime) -> Turn[Empty]:
    """End the node's membership: at the next step boundary if that was planned, else at once."""
    node = incarnations.sender_of(job, request)
    job = _leave_planned(job, node, request, now) if request.planned else _drop_out(job, node, request, now)
    return Turn(rules.settle(job, now), Empty())


def _refuse_useless(job: Job) -> None:
    if job.verdict:
        raise Stopping(f"job {job.spec.job} ends: {job.verdict.message}")


def _why_not(node: Node) -> str:
    if node.finished:
        return "has finished"
    return "failed for good" if node.failed else "is leaving"


def _join(job: Job, node: Node, request: Join, now: datetime) -> Waiting:
    return Waiting(
        slots=request.slots,
        address=request.address,
        port=request.port,
        files=request.files,
        recovery=request.recovery,
        since=node.joined.since if node.joined else now,
        until=now + timedelta(seconds=request.wait) + job.spec.limits.silence,
    )


def _end_own_world(job: Job, request: Join, now: datetime) -> Job:
    """End the world of a member that joins: it has stopped stepping."""
    name = request.node
    if not (job.world and job.member(name)):
        return job
    if job.leaving and request.recovery is Recovery.RESTART:
        return job  # it has saved already: its world ends when the others have
    broken = request.broken and request.after == job.world.round
    job = rules.end(job, f"{name} joins again", now, lost=(name,) if broken else ())
    if job.ending and not job.ending.stopped:
        job = job.but(ending=job.ending.but(stopped=now))
    return rules.tell_restart(job, name) if request.recovery is Recovery.RESTART else job


def _leave_planned(job: Job, node: Node, request: Leave, now: datetime) -> Job:
    """Keep the node as a member until the step boundary, so that its last step counts; a script longer.

    Its pod's deletion may give another grace than the one that the agent was started with.
    """
    job = job.put(node.but(leaving=True, joined=None))
    if rules.leaves(job, node.name):
        return job if request.grace > 0 else rules.note_departure(job, node.name, now)
    because = f": {request.reason}" if request.reason else ""
    grace = node.grace if node.grace is not None and request.grace > 0 else request.grace
    if job.ending and node.joined:  # its script has ended already
        grace = 0.0
    return rules.depart(job, node.name, f"{node.name} leaves{because}", grace, now)


def _drop_out(job: Job, node: Node, request: Leave, now: datetime) -> Job:
    """Lose the node's part in the world: a worker died. The node itself lives on and joins as a newcomer."""
    if request.round <= node.left:
        return job
    if node.round != request.round:
        raise Stale(f"round {request.round} is over for {node.name}: it is in round {node.round}")
    job = job.put(node.but(left=request.round))
    return rules.lose(
        job, node.name, f"{node.name} lost a worker: {request.reason or 'no reason given'}", now
    )
