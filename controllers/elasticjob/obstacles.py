"""Why nodes of a job do not run: a reason for tables and programs, and a sentence for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.readings import after
from elasticjob.api.roles import WORKER
from elasticjob.api.troubles.causes import REFINED, cause_of, sentence_of
from elasticjob.api.troubles.facts import UNREADY
from elasticjob.api.v1alpha1.common import RESTARTS_SPENT
from elasticjob.controllers.elasticjob.gang import GANG_UNAVAILABLE
from elasticjob.controllers.elasticjob.objects import sizes_of_user
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.nodes.relaunch import RESIZING, Life, Node
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.conclusions import IMPOSSIBLE, why_impossible
from elasticjob.controllers.passes.plan import NAME_TAKEN, REFUSED, Plan, soonest
from elasticjob.kube.objects.conditions import find

SLOW: Final = timedelta(seconds=30)
"""A pod that has not started for so long, and does not say why, is an obstacle: a volume that is missing is
told in the pod's events only."""


REFUSALS: Final = frozenset({REFUSED, *(cause for reason, _, cause in REFINED if reason == REFUSED)})
"""Causes of writes that the API server refuses."""


@dataclass(frozen=True)
class Obstacle:
    """What keeps a node from running, or from what it is to have: a word of CAUSES, and the instance."""

    reason: str
    sentence: str

    @property
    def told(self) -> str:
        """The sentence with the title of its cause."""
        return sentence_of(self.reason, self.sentence)


def obstacles(seen: Seen, plan: Plan, now: datetime, slow: timedelta | None = None) -> tuple[Obstacle, ...]:
    """Return what keeps nodes from running: writes that failed first, then the master, then the nodes.

    A pod that starts is an obstacle after `slow`, SLOW unless given.
    """
    begun = now - (SLOW if slow is None else slow)
    master = seen.master.latest
    held = _of_master(master, begun, now) if master else None
    nodes = (_of_node(seen, node, begun) for node in seen.target_nodes)
    every = (*_refusals(seen, plan), held, *nodes, *_sizes(seen), _eviction(seen))
    return tuple(found for found in every if found)


def slow_in(seen: Seen, now: datetime) -> timedelta | None:
    """Return when a pod that starts is to be looked at: when it is slow, and then again and again."""
    starting = (life for life in (*seen.masters, *seen.lives) if _starts(life))
    due = [after(life.since, SLOW) for life in starting if life.since]
    due += [after(life.unready, UNREADY) for life in seen.masters if life.unready and not life.terminating]
    return soonest(at - now if at > now else SLOW for at in due)


def needs(seen: Seen, now: datetime, slow: timedelta | None = None) -> frozenset[str]:
    """Return the objects of volumes that pods which are slow to start may lack."""
    begun = now - (SLOW if slow is None else slow)
    starting = (life for life in (*seen.masters, *seen.lives) if _is_slow(life, begun))
    return frozenset(need for life in starting for need in life.needs)


def _refusals(seen: Seen, plan: Plan) -> Iterator[Obstacle]:
    ready = find(seen.resource.status.conditions, "Ready") if seen.resource else None
    told = [(plan.reason, plan.sentence)] + ([(ready.reason, ready.message)] if ready else [])
    for reason, sentence in told:
        if reason in (REFUSED, NAME_TAKEN, GANG_UNAVAILABLE):
            yield Obstacle(cause_of(reason, sentence), sentence)


def _sizes(seen: Seen) -> Iterator[Obstacle]:
    """Sizes that the job asks for and its limits do not allow."""
    resource = seen.resource.metadata if seen.resource else None
    job = seen.job.metadata
    bounds = names.bounds_plan(job.name, job.generation, resource.generation if resource else 0)
    for plan in seen.plans:
        why = why_impossible(plan) if plan == seen.newest_request or plan.metadata.name == bounds else ""
        for role, spec in plan.spec.replica_resource_specs.items() if why else ():
            have, wanted = seen.sizes.get(role), spec.replicas
            known = wanted is not None and have not in (None, wanted, _permits(seen, role, wanted))
            if known and (plan.metadata.name == bounds or sizes_of_user(seen.job).get(role) == wanted):
                yield Obstacle(IMPOSSIBLE, f"{role} has {have} of {wanted} nodes: {why}")


def _eviction(seen: Seen) -> Obstacle | None:
    """A worker whose machine is to be emptied, and which minReplicas keeps there."""
    if WORKER not in seen.sizes or not seen.job.spec.needs_master or seen.job.spec.suspend:
        return None
    ready = [life for life in seen.lives if life.role == WORKER and life.ready and not life.terminating]
    least = min(seen.job.spec.range_of(WORKER).lowest, seen.sizes[WORKER])
    stays = next((life for life in ready if life.notice and not life.notice.at_once), None)
    if stays is None or stays.notice is None or len(ready) > least:
        return None
    why = f"{stays.machine} {stays.notice.why}, and minReplicas {least} forbids an eviction"
    return Obstacle("EvictionWaits", f"{stays.name} stays: {why} until another worker is ready")


def _permits(seen: Seen, role: str, count: int) -> int:
    return seen.job.spec.range_of(role).clamp(count) if role in seen.job.spec.roles else count


def _of_master(life: Life, begun: datetime, now: datetime) -> Obstacle | None:
    if not life.running:
        return _waiting(life, begun)
    if life.terminating or life.unready is None or now < after(life.unready, UNREADY):
        return None
    return Obstacle("MasterUnreachable", f"{life.name} does not answer its probe")


def _of_node(seen: Seen, node: Node, begun: datetime) -> Obstacle | None:
    life = node.latest
    if life is None:
        return None
    if life.running:
        return Obstacle(RESIZING, f"{life.name}: {life.unresized}") if life.unresized else None
    if seen.is_spent(node) and life.ended:
        sentence = f"{life.name} failed and is not replaced: {life.ended.sentence}"
        return Obstacle(RESTARTS_SPENT, sentence)
    return _waiting(life, begun)


def _waiting(life: Life, begun: datetime) -> Obstacle | None:
    waiting = life.waiting or (life.start if _is_slow(life, begun) else "")
    if not waiting:
        return None
    reason = waiting.partition(":")[0] or "Pending"
    return Obstacle(cause_of(reason, waiting), f"{life.name} is pending: {waiting}")


def _is_slow(life: Life, begun: datetime) -> bool:
    return _starts(life) and life.since is not None and life.since <= begun


def _starts(life: Life) -> bool:
    return life.alive and not life.running and not life.terminating and not life.waiting
