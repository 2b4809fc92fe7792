"""Tables of request handlers: every request that a master accepts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from elasticjob.api.rpc.check import Check
from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Failure, Finish, Report, Watch
from elasticjob.api.rpc.parameters import Depart, Follow, Save, Serve
from elasticjob.api.rpc.rendezvous import Join, Leave
from elasticjob.api.rpc.shards import Checkpoint, Close, Lease, Open, Restore, Result, Status
from elasticjob.master.handlers import check as checks
from elasticjob.master.handlers import nodes, parameters, rendezvous, shards
from elasticjob.master.health import ends, verdict, watch
from elasticjob.master.progress import goodput
from elasticjob.master.rendezvous import holding, servers
from elasticjob.master.scaling import statistics
from elasticjob.master.shards import book
from elasticjob.master.state.job import Job, Turn

Handler = Callable[[Job, Any, datetime], Turn[Any]]
Change = Callable[[Job, Any, datetime], Job]

HANDLERS: dict[type[Request[Any]], Handler] = {
    Join: rendezvous.join,
    Check: checks.check,
    Leave: rendezvous.leave,
    Watch: nodes.watch,
    Report: nodes.report,
    Failure: nodes.failure,
    Finish: nodes.finish,
    Open: shards.open_dataset,
    Lease: shards.lease,
    Result: shards.result,
    Close: shards.close,
    Checkpoint: shards.checkpoint,
    Restore: shards.restore,
    Status: shards.status,
    Serve: parameters.serve,
    Follow: parameters.follow,
    Depart: parameters.depart,
    Save: parameters.save,
}

AGAIN: Final = object()
"""The answer to a long poll that is to be handled again: its answer changes the job."""
MOVES: Final = (Join, Leave, Failure, Finish)
"""Requests by which a node does something else than before."""
CONSUMERS: Final = (Open, Lease, Result)
"""Long polls that wait for shards, or for a saved ledger."""
PLANES: Final = (Serve, Follow)
"""Long polls that wait for other parameter servers, or for a saved change of them."""

# Long polls. LATER: the response after the job changed, None to go on waiting. EXPIRED: the response at the
# deadline, None for "ask again". CUT: how a disconnect during the poll changes the job.
LATER: dict[type[Request[Any]], Callable[[Job, Any, datetime], Any]] = {
    Join: lambda job, request, _: rendezvous.answer(job, request),
    Check: lambda job, request, _: checks.answer(job, request),
    Watch: nodes.answer,
    Open: lambda *_: AGAIN,
    Lease: lambda *_: AGAIN,
    Result: lambda *_: AGAIN,
    Serve: lambda job, request, _: parameters.answer(job, request),
    Follow: lambda job, request, _: parameters.answer(job, request),
}
EXPIRED: dict[type[Request[Any]], Callable[[Job, Any, datetime], Any]] = {
    Join: lambda *_: None,
    Check: lambda *_: None,
    Watch: nodes.orders,
    Open: lambda *_: None,
    Lease: lambda *_: None,
    Result: lambda *_: None,
    Serve: lambda job, *_: servers.saved_state(job.parameters),
    Follow: lambda job, *_: servers.saved_state(job.parameters),
}
CUT: dict[type[Request[Any]], Change] = {
    Join: rendezvous.withdraw,
    Watch: nodes.hang_up,
    Serve: parameters.doubt,
    Follow: parameters.doubt,
}

TIMEOUTS: dict[str, Callable[[Job, datetime], Job]] = {
    "account": goodput.close,
    "holding": holding.look,
    "nodes": nodes.tick,
    "check": checks.settle,
    "shards": lambda job, now: _with_shards(job, book.tick(job.shards, now)),
    "servers": servers.settle,
    "health": watch.look,
    "ends": ends.look,
    "verdict": verdict.judge,
    "statistics": statistics.take,
}
"""Changes by time alone, in their order; each leaves a sound job, so that one may be left out."""

VERBS: dict[str, type[Request[Any]]] = {request.PATH: request for request in HANDLERS}


def handle(job: Job, request: Request[Any], now: datetime) -> Turn[Any]:
    """Return the job after `request`, and the response. A RequestError leaves the job unchanged.

    Heartbeats and reports, nearly all requests, leave the counts of nodes and the world as they were, and
    with them the verdict; what time alone decides is left to `tick`.
    """
    if isinstance(request, MOVES):
        job = goodput.close(job, now)
    turn = HANDLERS[type(request)](job, request, now)
    after = turn.job
    if after.nodes.kinds is job.nodes.kinds and after.world is job.world and after.restarts == job.restarts:
        return turn
    return Turn(verdict.judge(after, now, whole=False), turn.reply)


def cut(job: Job, request: Request[Any], now: datetime) -> Job:
    """Return the job after the client of a long poll has disconnected."""
    job = goodput.close(job, now)
    return verdict.judge(CUT[type(request)](job, request, now), now, whole=False)


def tick(job: Job, now: datetime) -> Job:
    """Return the job after all timeouts that have expired by `now`."""
    for change in TIMEOUTS.values():
        job = change(job, now)
    return job


def judge(job: Job, now: datetime) -> Job:
    """Return the job with its verdict, if the observed state brings one."""
    return verdict.judge(job, now)


def _with_shards(job: Job, after: book.Book) -> Job:
    return job if after is job.shards else job.but(shards=after)
