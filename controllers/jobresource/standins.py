"""Nodes beside those that are wanted: spares, and standbys for nodes whose machines are about to leave.

1. Only workers have them, and only in jobs with a master: it has them wait while the world is full.
2. Spares have the indices that follow the wanted ones. They stay.
3. A node whose pod's machine is about to leave gets one standby, on the next index without a pod. A standby
   that failed is not made again; one that the cluster took away is, as any node, after a pause.
4. A standby is let go once its node runs elsewhere and had time to join, or its machine stays after all.
5. Machines that are only silent are not believed if all of them are: it is the cluster that cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Final, NamedTuple

from elasticjob.api.readings import after
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.controllers.nodes.drains import SILENT
from elasticjob.controllers.nodes.relaunch import Life, Node, Place

JOINS: Final = timedelta(seconds=20)
"""How long a pod that was placed on its machine needs to import torch and to join."""

Nodes = Mapping[Place, Node]


class Extra(NamedTuple):
    """A node beside the wanted ones; `stands_in`: for which node, None for a spare."""

    node: Node
    stands_in: Node | None = None


def extra(
    job: ElasticJob | None, wanted: Nodes, known: Nodes, lives: Iterable[Life]
) -> Mapping[Place, Extra]:
    """Return the nodes to have beside the wanted ones, with the pods they have had."""
    if job is None or not job.spec.needs_master or not any(role == WORKER for role, _ in wanted):
        return {}
    extras = {place: Extra(node) for place, node in _spares(job, wanted, known)}
    inner = {**wanted, **{place: spare.node for place, spare in extras.items()}}
    beside = [life for life in lives if life.role == WORKER and (WORKER, life.index) not in inner]
    last = {node.latest.uid for node in known.values() if node.latest}
    made = [life for life in beside if life.stands_in is not None and life.uid in last]
    for life in made:
        place, for_ = (WORKER, life.index), inner.get((WORKER, life.stands_in or 0))
        if (_goes_on(life) or life.over) and not _failed(life) and for_ and not _is_settled(for_):
            extras[place] = Extra(known[place], for_)
    tried = {life.stands_in for life in made if _goes_on(life) or life.over}
    missing = [node for node in inner.values() if node.index not in tried and _will_go(node, inner)]
    free = (index for index in count(_end(inner)) if (WORKER, index) not in known)
    for node, index in zip(missing, free, strict=False):
        extras[WORKER, index] = Extra(Node(WORKER, index), node)
    return extras


def stays_for(life: Life, wanted: Nodes, now: datetime) -> timedelta:
    """Return for how long a standby that is not needed any more goes on: its node has yet to join."""
    node = wanted.get((life.role, life.stands_in)) if life.stands_in is not None else None
    latest = node.latest if node else None
    if latest is None or latest.since is None or not _goes_on(latest):
        return timedelta(0)
    return after(latest.since, JOINS) - now


def _spares(job: ElasticJob, wanted: Nodes, known: Nodes) -> Iterator[tuple[Place, Node]]:
    for index in islice(count(_end(wanted)), job.spec.spares_of(WORKER)):
        place = (WORKER, index)
        yield place, known.get(place, Node(*place))


def _end(nodes: Iterable[Place]) -> int:
    """The first index after those of the workers."""
    return max(index for role, index in nodes if role == WORKER) + 1


def _will_go(node: Node, others: Nodes) -> bool:
    life = node.latest
    if node.role != WORKER or life is None or not _goes_on(life) or life.notice is None:
        return False
    if life.notice.why != SILENT:
        return True
    latest = [other.latest for other in others.values()]
    return any(other and _goes_on(other) and other.machine and other.notice is None for other in latest)


def _is_settled(node: Node) -> bool:
    """Whether a node runs on a machine that stays, or has done its work."""
    life = node.latest
    return node.succeeded or (life is not None and _goes_on(life) and life.ready and life.notice is None)


def _goes_on(life: Life) -> bool:
    return life.alive and not life.terminating


def _failed(life: Life) -> bool:
    return life.ended is not None and life.ended.consequence.counts
