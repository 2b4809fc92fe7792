"""Requests of parameter servers and of those who train with them. The rules are in `rules.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.parameters import Depart, Follow, Plane, Serve
from elasticjob.master.rendezvous import servers
from elasticjob.master.state.errors import Refused, Stopping
from elasticjob.master.state.job import Job, Turn
from elasticjob.master.state.servers import Follower, Server


def serve(job: Job, request: Serve, now: datetime) -> Turn[Plane]:
    """Note a server and what it holds; answer when there is something new."""
    _refuse_the_end(job)
    if request.index < 0:
        raise Refused(f"{request.node}: a parameter server needs an index of 0 or more")
    known = job.parameters.servers.get(request.incarnation)
    server = Server(
        node=request.node,
        incarnation=request.incarnation,
        index=request.index,
        address=request.address,
        pod=request.pod,
        since=known.since if known else now,
        beat=now,
        holds=request.holds,
    )
    parameters = job.parameters.but(servers=job.parameters.servers | {request.incarnation: server})
    return _answered(job.but(parameters=parameters), request, now)


def follow(job: Job, request: Follow, now: datetime) -> Turn[Plane]:
    """Note a worker and what it has stopped; answer when there is something new."""
    _refuse_the_end(job)
    follower = Follower(incarnation=request.incarnation, beat=now, drained=request.drained)
    followers = job.parameters.followers | {request.incarnation: follower}
    return _answered(job.but(parameters=job.parameters.but(followers=followers)), request, now)


def depart(job: Job, request: Depart, now: datetime) -> Turn[Empty]:
    """Wait for this worker no more."""
    followers = {n: f for n, f in job.parameters.followers.items() if n != request.incarnation}
    job = servers.settle(job.but(parameters=job.parameters.but(followers=followers)), now)
    return Turn(job, Empty())


def answer(job: Job, request: Any) -> Plane | None:
    """Return the answer to a long poll if it is another than the sender has seen."""
    _refuse_the_end(job)
    found = servers.plane(job.parameters)
    return found if found.mark != request.seen else None


def _answered(job: Job, request: Any, now: datetime) -> Turn[Plane]:
    job = servers.settle(job, now)
    found = answer(job, request)
    return Turn(job) if found is None and request.wait else Turn(job, found or servers.plane(job.parameters))


def _refuse_the_end(job: Job) -> None:
    if job.verdict:
        raise Stopping(f"job {job.spec.job} ends: {job.verdict.message}")
