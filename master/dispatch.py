"""Which function answers which request: the whole of what a master can be asked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Failure, Finish, Report, Watch
from elasticjob.api.rpc.rendezvous import Join, Leave
from elasticjob.master import health, nodes, rendezvous
from elasticjob.master.job import Job, Turn

Handler = Callable[[Job, Any, datetime], Turn[Any]]
Change = Callable[[Job, Any, datetime], Job]

HANDLERS: dict[type[Request[Any]], Handler] = {
    Join: rendezvous.join,
    Leave: rendezvous.leave,
    Watch: nodes.watch,
    Report: nodes.report,
    Failure: nodes.failure,
    Finish: nodes.finish,
}

# Questions that wait. Later: what they are answered when the job has changed, None to wait on. Expired: what
# they are answered after that, None for "ask again". Cut: what it means that nobody waits any more.
LATER: dict[type[Request[Any]], Callable[[Job, Any, datetime], Any]] = {
    Join: lambda job, request, _: rendezvous.answer(job, request),
    Watch: nodes.answer,
}
EXPIRED: dict[type[Request[Any]], Callable[[Job, Any, datetime], Any]] = {
    Join: lambda *_: None,
    Watch: nodes.orders,
}
CUT: dict[type[Request[Any]], Change] = {Join: rendezvous.withdraw, Watch: nodes.hang_up}

VERBS: dict[str, type[Request[Any]]] = {request.PATH: request for request in HANDLERS}


def handle(job: Job, request: Request[Any], now: datetime) -> Turn[Any]:
    """Return the job after `request`, and its answer; RequestError if it is refused, and nothing changes."""
    turn = HANDLERS[type(request)](job, request, now)
    return Turn(health.judge(turn.job, now), turn.reply)


def cut(job: Job, request: Request[Any], now: datetime) -> Job:
    """Return the job after the line of a waiting `request` was cut."""
    return health.judge(CUT[type(request)](job, request, now), now)


def tick(job: Job, now: datetime) -> Job:
    """Return the job after all that time alone changes."""
    return health.judge(nodes.tick(job, now), now)


def judged(job: Job, now: datetime) -> Job:
    """Return the job with its verdict, if what was observed brings one."""
    return health.judge(job, now)
