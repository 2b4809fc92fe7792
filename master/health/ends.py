"""Ends of workers: a finding for each way to end, and rules that end the job.

1. A worker that ends with an error is counted in the finding of its way to end, unless it only lost its
peers. The finding is closed once no worker has ended so for some time.
2. An error is the same if its class, its message without numbers, and the frame that raised it are. The
history of a job is that of the last error that its workers raised without any progress, and that no other
machine would spare them, as their agents say. It begins anew with another error, and with each step.
3. RULES read that history; the first that has a verdict ends the job. Outside of a cluster there is none:
there `--max-restarts` says how often workers are started.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.rpc.nodes import Failure
from elasticjob.master.state.condition import Alike, Error, Kind
from elasticjob.master.state.job import End, Job, Verdict
from elasticjob.master.state.node import Node, Phase
from elasticjob.sizing.exits import ExitReason

CALM: Final = timedelta(minutes=10)
"""Without such an end, after which a finding is over."""
WAYS: Final = 4
"""How many findings about ends are open at once."""
TWICE: Final = 2
"""Starts of each node that end by the same error."""


@dataclass(frozen=True)
class History:
    """The ends by one error since the last step: of `nodes` at least twice, not so of `others`."""

    error: Error
    nodes: int = 0
    others: int = 0
    alone: bool = False  # a single worker raised it, and there are more


Rule = Callable[[History, datetime], Verdict | None]


def judge(history: History, now: datetime) -> Verdict | None:
    """Return the verdict of the first rule that has one."""
    return next((verdict for rule in RULES if (verdict := rule(history, now))), None)


def fail_when_all_raise_the_same_twice(history: History, now: datetime) -> Verdict | None:
    """Each node has raised the same exception twice, and no step was made: it is the script's own."""
    if not history.nodes or history.others or history.alone:
        return None
    who = "the node" if history.nodes == 1 else f"all {history.nodes} nodes"
    message = f"{who} failed twice with the same error before any step: {history.error.message}"
    return Verdict(end=End.FAILED, reason=ExitReason.CANNOT_START, message=message, at=now)


RULES: Final[tuple[Rule, ...]] = (fail_when_all_raise_the_same_twice,)


def history(job: Job) -> History:
    """Return the history of the error that workers of this job raised last.

    All nodes are looked at only where enough of them have raised it: a job may have ten thousand.
    """
    error, spec = job.error, job.spec
    if spec.replicas is None or error.nodes < max(1, spec.bounds.smallest) or error.mark != _mark(job):
        return History(error)
    there = [node for node in job.nodes.values() if node.role in spec.roles and _takes_part(node)]
    alike = [node.alike for node in there if node.alike and _is_twice(node.alike, error)]
    others = max(0, len(there) - len(alike) - spec.spares)
    alone = len(alike) == 1 and len(alike[0].workers) == 1 and not alike[0].alone
    return History(error, len(alike), others, alone)


def note(job: Job, request: Failure, now: datetime, *, foreseen: bool = False) -> Job:
    """Return the job with one more end of a worker; what follows from a `foreseen` one, the user has said."""
    node = job.nodes[request.node]
    again = max(0, request.restarts - node.restarts)
    node = node.but(number=max(node.number, request.number), restarts=node.restarts + again)
    job = job.put(node).but(restarted=job.restarted + again)
    if not request.echo:
        job = _count(job, f"{node.name}: {node.failure}", _about(request), now)
    return job if foreseen or not request.anywhere else _alike(job, node, request)


def look(job: Job, now: datetime) -> Job:
    """Close the findings about ends that have not come again for some time."""
    kind = Kind.WORKER_FAILED
    still = {each.about for each in job.health.findings if now - (each.last or each.at) < CALM}
    health = job.health.close(kind, now, still)
    return job if health is job.health else job.but(health=health, version=job.version + 1)


def _count(job: Job, message: str, about: str, now: datetime) -> Job:
    kind = Kind.WORKER_FAILED
    known = [each.about for each in job.health.findings if each.reason is kind and not each.until]
    health = job.health.count(kind, message, now, about)
    if about in known:
        return job.but(health=health)
    return job.but(health=health.close(kind, now, (*known, about)[-WAYS:]), version=job.version + 1)


def _about(request: Failure) -> str:
    return f"{request.exit_code} {request.way or request.message}"


def _alike(job: Job, node: Node, request: Failure) -> Job:
    """Return the job with one more worker that ended by an error of the script itself."""
    error, mark = job.error, _mark(job)
    if (error.way, error.mark) != (request.way, mark):
        message = f"{node.name}: {node.failure}"
        error = Error(number=error.number + 1, way=request.way, message=message, mark=mark)
    known = node.alike if node.alike and node.alike.error == error.number else Alike(error=error.number)
    start = f"{request.incarnation} {request.restarts + request.final}"
    alike = known.but(
        start=start,
        starts=known.starts + (start != known.start),
        workers=tuple(sorted({*known.workers, request.local_rank})),
        alone=request.workers == 1,
    )
    if _is_twice(alike, error) and not _is_twice(known, error):
        error = error.but(nodes=error.nodes + 1)
    return job.put(node.but(alike=alike)).but(error=error)


def _is_twice(alike: Alike, error: Error) -> bool:
    return alike.error == error.number and alike.starts >= TWICE


def _takes_part(node: Node) -> bool:
    """Whether the end of a node would say something: it has ended so, or its pod has a machine."""
    gone = node.leaving or node.excluded or node.phase is Phase.DELETED
    return not gone and (node.alike is not None or not node.pends)


def _mark(job: Job) -> tuple[int, int]:
    """Return the last round in which a step was made, and that step."""
    progress = job.training.progress
    return job.training.stepped, progress.step if progress else 0
