"""The status of a JobResource: how many of the wanted nodes are there, and why others are not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from elasticjob.api.sentences import few
from elasticjob.api.v1alpha1.common import RESTARTS_SPENT
from elasticjob.api.v1alpha1.jobresource import JobResourceStatus, RoleStatus
from elasticjob.controllers.jobresource.budget import Budget
from elasticjob.controllers.jobresource.decide import ALTERED, BLOCKED, READY, Seen, alterations, differing
from elasticjob.controllers.jobresource.facts import facts_of, with_facts
from elasticjob.controllers.jobresource.room import Room
from elasticjob.controllers.nodes.relaunch import (
    CANNOT_START,
    OUT_OF_MEMORY,
    POD_FAILED,
    POD_FAILURE_POLICY,
    RESIZING,
    Node,
    Standing,
)
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.plan import Note, Plan
from elasticjob.kube.objects.conditions import FALSE, TRUE, find, is_true, set_condition
from elasticjob.kube.objects.views import Condition
from elasticjob.sizing.exits import ExitReason


def describe(
    seen: Seen, plan: Plan, now: datetime, room: Room | None = None, least: Budget | None = None
) -> JobResourceStatus:
    """Return the status that follows from what was seen and decided; the same every time nothing changed."""
    generation = seen.resource.metadata.generation
    ready, reason, message = _ready(seen, plan, now)
    condition = Condition(
        type=READY,
        status="True" if ready else "False",
        reason=reason,
        message=message,
        observed_generation=generation,
    )
    conditions = set_condition(seen.resource.status.conditions, condition, now)
    admission = _admission(seen)
    if admission.status == TRUE or find(conditions, ALTERED):
        conditions = set_condition(conditions, admission, now)
    status = JobResourceStatus(
        replica_statuses={role: _role(seen, role) for role in seen.desired},
        room=dict(room.roles) if room else {},
        quota=dict(room.quota) if room else {},
        machine=room.machine.manifest() if room else {},
        min_available=least.least if least else seen.resource.status.min_available,
        selector=names.workers(seen.resource.metadata.name),
        conditions=conditions,
        observed_generation=generation,
    )
    if seen.job is None:  # gone, or not seen yet: what its nodes have achieved and suffered stays
        return status.model_copy(update=facts_of(seen.resource.status))
    return with_facts(status, seen.target_nodes.values(), seen.policy, now)


def alteration_event(old: JobResourceStatus, new: JobResourceStatus) -> Note | None:
    """Return the event about resources that admission changes, the first time that a status says so."""
    told = find(new.conditions, ALTERED)
    if told is None or told.status != TRUE or is_true(old.conditions, ALTERED):
        return None
    return Note(told.reason, told.message, warning=True)


def _admission(seen: Seen) -> Condition:
    """Whether a webhook or default of the cluster gives nodes other resources than those they are to have."""
    generation = seen.resource.metadata.generation
    by_change = dict[str, list[str]]()
    alive = (
        (node, node.latest.name) for node in seen.target_nodes.values() if node.latest and node.latest.alive
    )
    for node, pod in alive:
        for name, change in alterations(seen, node).items():
            by_change.setdefault(f"admission made {name} {change}", []).append(pod)
    if not by_change:
        return Condition(ALTERED, FALSE, "AsAsked", "", observed_generation=generation)
    told = "; ".join(f"{change}: {few(pods)}" for change, pods in by_change.items())
    return Condition(ALTERED, TRUE, "AdmissionChangedResources", told, observed_generation=generation)


def _role(seen: Seen, role: str) -> RoleStatus:
    lives = [life for (named, _), node in seen.nodes.items() if named == role for life in node.lives]
    return RoleStatus(
        desired=seen.desired[role],
        current=sum(life.alive and not life.terminating for life in lives),
        ready=sum(life.ready and not life.terminating for life in lives),
    )


def _ready(seen: Seen, plan: Plan, now: datetime) -> tuple[bool, str, str]:
    if plan.reason in BLOCKED:
        return False, plan.reason, plan.sentence
    obstacles = list(_obstacles(seen, now))
    if not obstacles:
        return True, "AsSpecified", "all nodes are ready"
    return False, obstacles[0][0], few((sentence for _, sentence in obstacles), separator="; ")


def _obstacles(seen: Seen, now: datetime) -> Iterator[tuple[str, str]]:
    """Reasons and sentences for nodes that are not ready, the most serious reason first."""
    obstacles = [obstacle for node in seen.target_nodes.values() if (obstacle := _obstacle(seen, node, now))]
    surplus = (
        node
        for place, node in seen.nodes.items()
        if place not in seen.target_nodes and place not in seen.extra
    )
    obstacles += [("Leaving", f"{life.name} leaves") for node in surplus for life in node.lives if life.alive]
    spent = (POD_FAILURE_POLICY, CANNOT_START, OUT_OF_MEMORY, RESTARTS_SPENT, POD_FAILED)
    order = (*spent, "Restarting", "Pending", "WaitingForQuota", "Leaving", RESIZING, "Starting")
    yield from sorted(obstacles, key=lambda obstacle: order.index(obstacle[0]))


def _obstacle(seen: Seen, node: Node, now: datetime) -> tuple[str, str] | None:
    life = node.latest
    match node.standing(seen.policy(node.role), now):
        case Standing.DONE:
            return None
        case Standing.RUNS if life and life.ready and differing(seen, node):
            return RESIZING, f"{life.name} is given other resources"
        case Standing.RUNS if life and life.ready and life.unresized:
            return RESIZING, f"{life.name}: {life.unresized}"
        case Standing.RUNS if life and life.ready:
            return None
        case Standing.RUNS if life and life.waiting:
            return "Pending", f"{life.name} is pending: {life.waiting}"
        case Standing.SPENT if life and life.ended:
            reason, _ = node.why_spent(seen.policy(node.role))
            return reason, f"{life.name} failed and is not replaced: {life.ended.sentence}"
        case Standing.SPENT:
            return POD_FAILED, f"{node.role} {node.index} failed and is not replaced; its pod is gone"
        case Standing.PAUSES | Standing.DUE if life and life.ended:
            failed = "" if life.ended.reason is ExitReason.SUCCEEDED else "failed and "
            again = node.told_repeats(now)
            return "Restarting", f"{life.name} {failed}will be replaced: {life.ended.sentence}{again}"
        case Standing.PAUSES if life:
            again = node.told_repeats(now)
            return "Restarting", f"{life.name} was lost with {life.machine} and will be replaced{again}"
        case Standing.LEAVES if life:
            return "Leaving", f"{life.name} is on its way out and will be replaced"
        case Standing.DUE if seen.grant and seen.waits_for_quota(node):
            return "WaitingForQuota", f"{node.role} {node.index} waits for quota: {seen.grant.sentence}"
        case _:
            return "Starting", f"{life.name if life else f'{node.role} {node.index}'} is starting"
