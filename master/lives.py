"""Lives of nodes: which incarnation speaks for a node, and what a newer one does to an older one.

Incarnations are random, so the one that is heard for the first time is the newer one. It replaces the
life before, whose id is refused from then on; a message is never believed because of a clock.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from elasticjob.api.rpc.nodes import Watch
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.master import rounds
from elasticjob.master.errors import Stale
from elasticjob.master.job import ENDS, Job, Node, Phase

RETIRED = 16  # incarnations remembered for each node


class Sender(Protocol):
    """What every message says about who sent it."""

    @property
    def node(self) -> str: ...

    @property
    def incarnation(self) -> str: ...


def known(job: Job, sender: Sender) -> Node:
    """Return the node that `sender` speaks for; Stale if that is not its present life."""
    node = job.nodes.get(sender.node)
    if node is None or not node.incarnation:
        raise Stale(f"the master does not know {sender.node} (yet): watch or join first")
    if node.incarnation != sender.incarnation:
        raise Stale(f"incarnation {sender.incarnation} of {sender.node} was replaced by {node.incarnation}")
    return node


def enter(job: Job, request: Watch | Join, now: datetime) -> Job:
    """Return the job in which the sender is the present life of its node; Stale if it was replaced."""
    node = job.nodes.get(request.node) or Node(name=request.node, role=request.role, index=request.index)
    if node.incarnation == request.incarnation:
        return job
    if request.incarnation in node.retired:
        raise Stale(f"incarnation {request.incarnation} of {request.node} was replaced by {node.incarnation}")
    if not node.incarnation:
        return job.put(node.but(incarnation=request.incarnation, phase=_begun(node)))
    job = job.put(node.but(finished=False))
    job = rounds.lose(job, node.name, f"{node.name} was replaced by a new incarnation", now)
    job = job.put(_reborn(job.nodes[node.name], request))
    return job.but(version=job.version + 1)


def claim(job: Job, name: str, number: int, now: datetime) -> Job:
    """Believe a node that trains in a round unknown to this master: a predecessor formed that world."""
    node = job.nodes[name]
    newest = job.world.round if job.world else 0
    if number <= newest or number < job.round or number in (node.round, node.left):
        return job
    job = rounds.end(job, f"a newer round {number} is known to {name}", now)
    return job.put(node.but(round=number)).but(
        round=number, version=job.version + 1, gathering=job.gathering or now
    )


def _begun(node: Node) -> Phase:
    """Return the phase in which a life begins: a pod that has ended is not the one that speaks."""
    return Phase.INITIAL if node.phase in ENDS else node.phase


def _reborn(node: Node, request: Watch | Join) -> Node:
    """Return the next life of `node`: what belongs to the place stays."""
    return Node(
        name=node.name,
        role=request.role,
        index=request.index,
        phase=_begun(node),
        pods=node.pods,
        uid=node.uid,
        incarnation=request.incarnation,
        retired=(*node.retired, node.incarnation)[-RETIRED:],
        failures=node.failures,
        failure=node.failure,
    )
