"""More memory after a pod was killed for want of it: twice as much, within the job's limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elasticjob.api.resources import Bytes, Resources, pod_requests
from elasticjob.api.v1alpha1.elasticjob import OptimizeMode
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.exits import ExitReason
from elasticjob.controllers.lives import Life

MOST_AT_ONCE: Final = Bytes.parse("8Gi")
"""The most that one plan adds."""
CEILING: Final = Bytes.parse("64Gi")
"""The most memory of a node whose job has no resourceLimits."""


@dataclass(frozen=True)
class Growth:
    """More memory for the nodes of a role, and the name of the plan that gives it."""

    role: str
    memory: str
    plan: str
    sentence: str


def growth(seen: Seen) -> Growth | None:
    """Return the growth that a killed pod without a plan asks for; None where nothing can or need be done.

    Each killed pod asks once: the plan bears its name. Jobs in mode manual, and roles with autoScale false,
    stay as their user sized them.
    """
    if seen.resource is None or seen.job.spec.optimize_mode is OptimizeMode.MANUAL:
        return None
    known = {plan.metadata.name for plan in seen.plans}
    for node in seen.wanted:
        life = node.latest
        if life is not None and _was_short(life) and (found := _more(seen, life)) and found.plan not in known:
            return found
    return None


def _was_short(life: Life) -> bool:
    end = life.ended
    return (
        end is not None and end.reason is ExitReason.OOM_KILLED and bool(end.memory) and not life.terminating
    )


def _more(seen: Seen, life: Life) -> Growth | None:
    spec = seen.job.spec.replica_specs[life.role]
    had = Bytes.parse(life.ended.memory) if life.ended else Bytes(0)
    given = seen.resource.spec.replica_resource_specs[life.role].resource if seen.resource else {}
    now = Bytes.parse(given["memory"]) if "memory" in given else had
    wanted = min(had * 2, had + MOST_AT_ONCE, _ceiling(seen, life.role, had))
    if not spec.auto_scale or wanted <= had or now >= wanted:
        return None
    sentence = f"{life.name} was OOMKilled at {had}: {life.role} gets {wanted}"
    return Growth(life.role, str(wanted), f"{life.name}-memory", sentence)


def _ceiling(seen: Seen, role: str, had: Bytes) -> Bytes:
    """The most memory that each node of `role` may have so that the whole job stays within its limits."""
    limits = Resources.parse(seen.job.spec.resource_limits)
    if "memory" not in limits:
        return CEILING
    others = sum((_memory(seen, other) * n for other, n in seen.sizes.items() if other != role), Bytes(0))
    left = Bytes.parse(str(limits["memory"])) - others
    return Bytes(int(left.value // max(1, seen.sizes[role])))


def _memory(seen: Seen, role: str) -> Bytes:
    spec = seen.resource.spec.replica_resource_specs.get(role) if seen.resource else None
    if spec is not None and "memory" in spec.resource:
        return Bytes.parse(spec.resource["memory"])
    requests = pod_requests(seen.job.spec.replica_specs[role].pod)
    return Bytes.parse(str(requests["memory"])) if "memory" in requests else Bytes(0)
