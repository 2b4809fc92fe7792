"""Incarnations of nodes: accept the newest, refuse the replaced.

Incarnations are random ids, so the one that is seen for the first time is the newer one. It replaces the
present one, whose id is refused from then on. Timestamps of clients are never compared.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from elasticjob.api.numbers import UNRANKED
from elasticjob.api.rpc.check import Check
from elasticjob.api.rpc.nodes import Watch
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.master.rendezvous import rules
from elasticjob.master.shards import book
from elasticjob.master.state.errors import Refused, Stale
from elasticjob.master.state.job import Job
from elasticjob.master.state.node import ENDS, Node, Phase

RETIRED = 16  # incarnations remembered per node
JUMP = 1_000_000  # rounds or versions that an earlier master may have counted without saving them


class Sender(Protocol):
    """The fields of every message that identify its sender."""

    @property
    def node(self) -> str: ...

    @property
    def incarnation(self) -> str: ...


def sender_of(job: Job, sender: Sender) -> Node:
    """Return the sender's node; raises Stale unless it is the present incarnation."""
    node = job.nodes.get(sender.node)
    if node is None or not node.incarnation:
        raise Stale(f"the master does not know {sender.node} (yet): watch or join first")
    if node.incarnation != sender.incarnation:
        raise Stale(f"incarnation {sender.incarnation} of {sender.node} was replaced by {node.incarnation}")
    return node


def enter(job: Job, request: Watch | Join | Check, now: datetime) -> Job:
    """Return the job with the sender as the present incarnation of its node; Stale if it was replaced."""
    node = job.nodes.get(request.node) or Node(
        name=request.node, role=request.role, index=_index(job, request)
    )
    if node.incarnation == request.incarnation:
        return job
    if request.incarnation in node.retired:
        raise Stale(f"incarnation {request.incarnation} of {request.node} was replaced by {node.incarnation}")
    if not node.incarnation:
        return job.put(node.but(incarnation=request.incarnation, phase=_first_phase(node)))
    if why := why_done(job, request):
        raise Refused(why)
    job = job.put(node.but(finished=False))
    job = rules.lose(job, node.name, f"{node.name} was replaced by a new incarnation", now)
    job = job.put(_reborn(job, job.nodes[node.name], request))
    return job.but(version=job.version + 1, shards=book.lose_node(job.shards, node.name))


def believe(node: str, what: str, number: int, known: int) -> None:
    """Raise Refused if no earlier master can have counted to `number`: every node would have to follow."""
    if number > known + JUMP:
        raise Refused(f"{node} sends {what} {number}, but the job is at {known}: start its agent again")


def why_done(job: Job, request: Watch | Join | Check) -> str:
    """Return why the next life of a node has nothing to do: the part of the node is done, whatever becomes of
    its pod; empty if that is not so, or it has finished only because others left.
    """
    node = job.nodes.get(request.node)
    if node is None or not node.finished or node.with_a_leave:
        return ""
    is_next = request.incarnation not in (node.incarnation, *node.retired)
    return f"{node.name} has finished: it enters no world any more" if is_next else ""


def claim(job: Job, name: str, number: int, now: datetime) -> Job:
    """Accept a node that trains in a round unknown to this master: an earlier master formed that world."""
    believe(name, "round", number, job.round)
    node = job.nodes[name]
    newest = job.world.round if job.world else 0
    if number <= newest or number < job.round or number in (node.round, node.left):
        return job
    job = rules.end(job, f"a newer round {number} is known to {name}", now)
    return job.put(node.but(round=number)).but(
        round=number, version=job.version + 1, gathering=job.gathering or now
    )


def _first_phase(node: Node) -> Phase:
    """Return the initial phase of a new incarnation: a pod that has ended belongs to an earlier one."""
    return Phase.INITIAL if node.phase in ENDS else node.phase


def _index(job: Job, request: Watch | Join | Check) -> int:
    """Return the node's index: its own, else the next of its role."""
    if request.index != UNRANKED:
        return request.index
    known = job.nodes.get(request.node)
    return known.index if known else 1 + job.nodes.highest.get(request.role, UNRANKED)


def _reborn(job: Job, node: Node, request: Watch | Join | Check) -> Node:
    """Return the next incarnation of `node`; what belongs to the place is kept."""
    return Node(
        name=node.name,
        role=request.role,
        index=_index(job, request),
        phase=_first_phase(node),
        pods=node.pods,
        uid=node.uid,
        incarnation=request.incarnation,
        retired=(*node.retired, node.incarnation)[-RETIRED:],
        failures=node.failures,
        failure=node.failure,
        alike=node.alike,
        failed_at=node.failed_at,
        excluded=node.excluded,
        spoilt=node.spoilt,
    )
