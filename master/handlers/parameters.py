"""Requests of parameter servers and of those who train with them. The rules are in `rules.py`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.parameters import Depart, Follow, Plane, Save, Serve
from elasticjob.master.health import watch
from elasticjob.master.rendezvous import servers
from elasticjob.master.state.errors import Refused, Stopping
from elasticjob.master.state.job import Job, Turn
from elasticjob.master.state.servers import Follower, Server

DOUBT: Final = timedelta(seconds=2)
"""A server or worker that has disconnected is lost if it is not heard again for so long."""


def serve(job: Job, request: Serve, now: datetime) -> Turn[Plane]:
    """Note a server and what it holds; answer when there is something new."""
    _refuse_the_end(job)
    if request.index < 0:
        raise Refused(f"{request.node}: a parameter server needs an index of 0 or more")
    known = job.parameters.servers.get(request.incarnation)
    others = job.parameters.servers
    if known is None and request.pod:  # a process that starts again in its pod: the one before has ended
        others = {name: each for name, each in others.items() if each.pod != request.pod}
    server = Server(
        node=request.node,
        incarnation=request.incarnation,
        index=request.index,
        address=request.address,
        pod=request.pod,
        since=known.since if known else now,
        beat=now,
        holds=request.holds,
        gone=request.gone,
        copies=request.copies,
        copied=request.copied,
        written=request.written,
        found=request.found,
        error=request.error,
    )
    job = watch.note_storage_trouble(job, request.node, known.error if known else "", request.error, now)
    parameters = job.parameters.but(servers=others | {request.incarnation: server})
    return _answer(_note_usage(job.but(parameters=parameters), request), request, now)


def follow(job: Job, request: Follow, now: datetime) -> Turn[Plane]:
    """Note a worker and what it has stopped; answer when there is something new."""
    _refuse_the_end(job)
    known = job.parameters.followers.get(request.incarnation)
    follower = Follower(
        incarnation=request.incarnation,
        node=request.node,
        worker=request.worker,
        beat=now,
        since=known.since if known else now,
        drained=request.drained,
        prepares=request.prepares,
        prepared=request.prepared,
        finishes=request.finishes,
        finished=request.finished,
    )
    place = request.node, request.worker
    others = {n: f for n, f in job.parameters.followers.items() if known or (f.node, f.worker) != place}
    followers = others | {request.incarnation: follower}
    return _answer(
        _note_usage(job.but(parameters=job.parameters.but(followers=followers)), request), request, now
    )


def save(job: Job, request: Save, now: datetime) -> Turn[Empty]:
    """Begin a save, unless one or a change is under way."""
    _refuse_the_end(job)
    return Turn(servers.save(servers.settle(job, now)), Empty())


def depart(job: Job, request: Depart, now: datetime) -> Turn[Empty]:
    """Wait for this worker no more."""
    followers = {n: f for n, f in job.parameters.followers.items() if n != request.incarnation}
    job = servers.settle(job.but(parameters=job.parameters.but(followers=followers)), now)
    return Turn(job, Empty())


def doubt(job: Job, request: Serve | Follow, now: datetime) -> Job:
    """Shorten the heartbeat deadline of who has disconnected during a poll: a client repeats it at once."""
    parameters, latest = job.parameters, now - job.spec.limits.silence + DOUBT
    if found := parameters.servers.get(request.incarnation):
        doubted = found.but(beat=min(found.beat, latest))
        parameters = parameters.but(servers=parameters.servers | {request.incarnation: doubted})
    elif follower := parameters.followers.get(request.incarnation):
        doubtful = follower.but(beat=min(follower.beat, latest))
        parameters = parameters.but(followers=parameters.followers | {request.incarnation: doubtful})
    return job.but(parameters=parameters)


def answer(job: Job, request: Any) -> Plane | None:
    """Return the answer to a long poll if it is another than the sender has seen, and saved."""
    _refuse_the_end(job)
    found = servers.saved_state(job.parameters)
    return found if found and found.mark != request.seen else None


def _note_usage(job: Job, request: Serve | Follow) -> Job:
    """Return the job with what a node uses that has no agent."""
    node = job.nodes.get(request.node)
    return job.put(node.using(request.usage)) if node and request.usage else job


def _answer(job: Job, request: Any, now: datetime) -> Turn[Plane]:
    job = servers.settle(job, now)
    return Turn(job, answer(job, request) or (None if request.wait else servers.saved_state(job.parameters)))


def _refuse_the_end(job: Job) -> None:
    if job.verdict:
        raise Stopping(f"job {job.spec.job} ends: {job.verdict.message}")
