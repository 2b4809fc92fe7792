"""More memory after a pod was killed for want of it: twice as much, within the job's limits.

A pod that was killed at a limit is answered once, by whichever of these is there first:

    its role gets more than that limit already          → nothing to do: its successor has more
    a plan that gives the role more is not finished     → its successor waits for that plan
    no plan bears the pod's name, and there is room     → a plan is asked for, its successor waits for it
    anything else                                       → no more is coming

So a pod that still had the old limit, however late it died, never makes the role grow a second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elasticjob.api.resources import Bytes, Raw, Resources, pod_requests
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, OptimizeMode
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers import names
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


@dataclass(frozen=True)
class Sizing:
    """What a job's memory rests on: what its user says, what its nodes get now, and what is planned."""

    job: ElasticJob
    resource: JobResource
    plans: Sequence[ScalePlan]

    def growth(self, life: Life) -> Growth | None:
        """Return what `life` asks for if it was killed for want of memory; None where no plan is needed."""
        found = self._growth(life)
        if found is None or self._is_planned(life, found.plan) or self._coming(life):
            return None
        return found

    def is_coming(self, life: Life) -> bool:
        """Whether more memory than `life` had is asked for, and not there yet: its successor should wait.

        Not for a plan that waits itself until a user's plan is carried out: that may wait for this node.
        """
        found = self._growth(life)
        if found is None:
            return False
        coming = self._coming(life)
        if coming is not None and coming.manual:
            return True
        held = any(plan.manual and _resizes(plan, life.role) for plan in self._open)
        return not held and (coming is not None or not self._is_planned(life, found.plan))

    @property
    def _open(self) -> tuple[ScalePlan, ...]:
        return tuple(plan for plan in self.plans if not (plan.status.phase and plan.status.phase.finished))

    def _growth(self, life: Life) -> Growth | None:
        """What is right for a pod that was killed at its limit, whatever is planned already."""
        spec = self.job.spec.replica_specs.get(life.role)
        if spec is None or not spec.auto_scale or self.job.spec.optimize_mode is OptimizeMode.MANUAL:
            return None
        if life.role not in self.resource.spec.replica_resource_specs or (had := limit_of(life)) is None:
            return None
        if self._has_its_own(life):
            return None
        wanted = min(had * 2, had + MOST_AT_ONCE, self._ceiling(life.role))
        if wanted <= had or self._given(life.role, had) > had:
            return None
        sentence = f"{life.name} was OOMKilled at {had}: {life.role} gets {wanted}"
        return Growth(life.role, str(wanted), f"{life.name}-memory", sentence)

    def _coming(self, life: Life) -> ScalePlan | None:
        """The plan that will give the role more than `life` had."""
        had = limit_of(life)
        plans = ((plan, _memory_of(plan, life.role)) for plan in self._open)
        return next((plan for plan, memory in plans if had and memory and memory > had), None)

    def _is_planned(self, life: Life, name: str) -> bool:
        return any(plan.metadata.name == name for plan in self.plans)

    def _has_its_own(self, life: Life) -> bool:
        """Whether memory is said of the node itself: what its role gets does not reach it."""
        node = names.node(self.job.metadata.name, life.role, life.index)
        return any(one.name == node and "memory" in one.resource for one in self.resource.spec.nodes)

    def _given(self, role: str, had: Bytes) -> Bytes:
        """What a node of the role gets now: what the killed pod had, if nothing is said."""
        return _memory_in(self.resource.spec.replica_resource_specs[role].resource) or had

    def _ceiling(self, role: str) -> Bytes:
        """The most memory that each node of `role` may have so that the whole job stays within its limits."""
        limits = Resources.parse(self.job.spec.resource_limits)
        if "memory" not in limits:
            return CEILING
        others = sum((self._uses(other) * n for other, n in self._sizes.items() if other != role), Bytes(0))
        left = Bytes.parse(str(limits["memory"])) - others
        return Bytes(int(left.value // max(1, self._sizes.get(role, 0))))

    def _uses(self, role: str) -> Bytes:
        if given := _memory_in(self.resource.spec.replica_resource_specs[role].resource):
            return given
        requests = pod_requests(self.job.spec.replica_specs[role].pod)
        return Bytes.parse(str(requests["memory"])) if "memory" in requests else Bytes(0)

    @property
    def _sizes(self) -> Mapping[str, int]:
        specs, roles = self.resource.spec.replica_resource_specs, self.job.spec.roles
        return {r: s.replicas for r, s in specs.items() if r in roles and s.replicas is not None}


def limit_of(life: Life) -> Bytes | None:
    """Return the limit at which `life` was killed for want of memory; None if that is not how it ended."""
    end = life.ended
    if end is None or life.terminating or end.reason is not ExitReason.OOM_KILLED or not end.memory:
        return None
    return Bytes.parse(end.memory)


def _resizes(plan: ScalePlan, role: str) -> bool:
    spec = plan.spec.replica_resource_specs.get(role)
    return spec is not None and bool(spec.resource)


def _memory_of(plan: ScalePlan, role: str) -> Bytes | None:
    return _memory_in(plan.spec.replica_resource_specs[role].resource) if _resizes(plan, role) else None


def _memory_in(resource: Mapping[str, Raw]) -> Bytes | None:
    return Bytes.parse(resource["memory"]) if "memory" in resource else None
