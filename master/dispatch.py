"""Tables of request handlers: every request that a master accepts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Failure, Finish, Report, Watch
from elasticjob.api.rpc.rendezvous import Join, Leave
from elasticjob.master import health, nodes
from elasticjob.master.job import Job, Turn
from elasticjob.master.rendezvous import conversation
from elasticjob.master.workers import watch

Handler = Callable[[Job, Any, datetime], Turn[Any]]
Change = Callable[[Job, Any, datetime], Job]

HANDLERS: dict[type[Request[Any]], Handler] = {
    Join: conversation.join,
    Leave: conversation.leave,
    Watch: nodes.watch,
    Report: nodes.report,
    Failure: nodes.failure,
    Finish: nodes.finish,
}

# # Long polls. LATER: the response after the job changed, None to go on waiting. EXPIRED: the response at the
# deadline, None for "ask again". CUT: how a disconnect during the poll changes the job.
LATER: dict[type[Request[Any]], Callable[[Job, Any, datetime], Any]] = {
    Join: lambda job, request, _: conversation.answer(job, request),
    Watch: nodes.answer,
}
EXPIRED: dict[type[Request[Any]], Callable[[Job, Any, datetime], Any]] = {
    Join: lambda *_: None,
    Watch: nodes.orders,
}
CUT: dict[type[Request[Any]], Change] = {Join: conversation.withdraw, Watch: nodes.hang_up}

VERBS: dict[str, type[Request[Any]]] = {request.PATH: request for request in HANDLERS}


def handle(job: Job, request: Request[Any], now: datetime) -> Turn[Any]:
    """Return the job after `request`, and the response. A RequestError leaves the job unchanged."""
    turn = HANDLERS[type(request)](job, request, now)
    return Turn(health.judge(turn.job, now), turn.reply)


def cut(job: Job, request: Request[Any], now: datetime) -> Job:
    """Return the job after the client of a long poll has disconnected."""
    return health.judge(CUT[type(request)](job, request, now), now)


def tick(job: Job, now: datetime) -> Job:
    """Return the job after all timeouts that have expired by `now`."""
    return health.judge(watch.look(nodes.tick(job, now), now), now)


def judged(job: Job, now: datetime) -> Job:
    """Return the job with its verdict, if the observed state brings one."""
    return health.judge(job, now)
