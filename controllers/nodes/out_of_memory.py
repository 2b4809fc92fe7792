"""More memory for pods that were OOMKilled: twice as much, at most 8 GiB more, up to a ceiling.

The ceiling is what the job's resourceLimits leave, and what the largest machine has; 64 GiB if neither is
known.

For a pod that was killed at a limit, the first that applies:

    it would get more than that limit by now            → nothing to do: its successor has more
    a plan that gives it more is not finished           → its successor waits for that plan
    no plan bears the pod's name, and there is room     → a plan is asked for, its successor waits for it
    anything else                                       → no more is coming

Its role grows, or the node alone if the JobResource has a memory of its own for the node.
So a pod that still had the old limit, however late it died, never makes either grow a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from elasticjob.api.resources import Bytes, Raw, Resources, container_requests, pod_requests
from elasticjob.api.sizes.need import Need
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, OptimizeMode
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.placing import with_resource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.api.v1alpha1.sizing import need_of
from elasticjob.controllers.nodes.machines import Largest
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.sizing.exits import ExitReason
from elasticjob.sizing.rules.oom import CEILING, next_memory

Place = tuple[str, int]
Group = Place | str
"""A node with a memory of its own, or all other nodes of a role."""


@dataclass(frozen=True)
class Growth:
    """More memory for the nodes of a role, or for one `node`, and the name of the plan that gives it."""

    role: str
    node: str
    memory: str
    plan: str
    sentence: str

    @property
    def changes(self) -> Manifest:
        """The changes in its plan."""
        resource = {"memory": self.memory}
        if self.node:
            return {"migratePods": [{"name": self.node, "resource": resource}]}
        return {"replicaResourceSpecs": {self.role: {"resource": resource}}}


@dataclass(frozen=True)
class Ceiling:
    """The most memory that a node may have, why, and how a user allows more."""

    memory: Bytes
    why: str
    remedy: str


@dataclass(frozen=True)
class Sizing:
    """The memory of a job's nodes: what the user asks for, what they get now, and what is planned.

    `largest` has the largest machine for each role of which a node was out of memory.
    """

    job: ElasticJob
    resource: JobResource
    plans: Sequence[ScalePlan]
    largest: Mapping[str, Largest] = field(default_factory=dict)

    def growth(self, life: Life) -> Growth | None:
        """Return the growth that `life` needs if it was OOMKilled; None where no plan is needed."""
        found = self._growth(life)
        if found is None or self._is_planned(life, found.plan) or self._coming(life):
            return None
        return found

    def is_coming(self, life: Life) -> bool:
        """Whether more memory than `life` had is planned but not given yet, so its successor should wait.

        Not for a plan that waits itself until a user's plan is carried out: that may wait for this node.
        """
        found = self._growth(life)
        if found is None:
            return False
        coming = self._coming(life)
        if coming is not None and coming.manual:
            return True
        held = any(plan.manual and self._resource_in(plan, life) for plan in self._open)
        return not held and (coming is not None or not self._is_planned(life, found.plan))

    def next_memory(self, life: Life) -> Bytes | None:
        """Return what a pod that was OOMKilled would get next; None if that is no more than it had."""
        had, sizes = limit_of(life), self.resource.spec.replica_resource_specs
        if had is None or self._users_word(life.role) or life.role not in sizes:
            return None
        return next_memory(had, self._ceiling((life.role, life.index)).memory)

    def why_no_more(self, life: Life) -> str:
        """Return why a pod that was OOMKilled gets no more memory, and what to do; "" if it may get more."""
        if (had := limit_of(life)) is None or life.role not in self.job.spec.replica_specs:
            return ""
        if fixed := self._users_word(life.role):
            return f"{fixed}, so its memory stays: raise resources.limits.memory of {life.role}"
        if life.role not in self.resource.spec.replica_resource_specs:
            return ""
        ceiling = self._ceiling((life.role, life.index))
        return f"{ceiling.why}: {ceiling.remedy}" if ceiling.memory <= had else ""

    def _users_word(self, role: str) -> str:
        """The user's word for which the memory of a role is not changed, "" if there is none."""
        if self.job.spec.optimize_mode is OptimizeMode.MANUAL:
            return "optimizeMode is manual"
        spec = self.job.spec.replica_specs.get(role)
        return "" if spec is not None and spec.auto_scale else f"autoScale of {role} is false"

    @property
    def _open(self) -> tuple[ScalePlan, ...]:
        return tuple(plan for plan in self.plans if not (plan.status.phase and plan.status.phase.is_terminal))

    def _growth(self, life: Life) -> Growth | None:
        """The growth for a pod that was killed at its limit, whether or not it is planned already."""
        had, wanted = limit_of(life), self.next_memory(life)
        place = (life.role, life.index)
        if had is None or wanted is None or (self._present_memory(place) or had) > had:
            return None
        node = self._name(place) if place in self._own else ""
        most = f", the most: {self._ceiling(place).why}" if wanted == self._ceiling(place).memory else ""
        sentence = f"{life.name} was OOMKilled at {had}: {node or life.role} gets {wanted}{most}"
        return Growth(life.role, node, str(wanted), f"{life.name}-memory", sentence)

    def _coming(self, life: Life) -> ScalePlan | None:
        """The plan that will give the next life more than `life` had."""
        had = limit_of(life)
        plans = ((plan, _planned_in(self._resource_in(plan, life))) for plan in self._open)
        return next((plan for plan, memory in plans if had and memory and memory > had), None)

    def _is_planned(self, life: Life, name: str) -> bool:
        return any(plan.metadata.name == name for plan in self.plans)

    def _resource_in(self, plan: ScalePlan, life: Life) -> Mapping[str, Raw]:
        """The resource in a plan for the next life: that of its node if the node has a memory of its own."""
        if (place := (life.role, life.index)) in self._own:
            ours = {self._name(place), life.name}
            return next((pod.resource for pod in plan.spec.migrate_pods if pod.name in ours), {})
        spec = plan.spec.replica_resource_specs.get(life.role)
        return spec.resource if spec else {}

    def _name(self, place: Place) -> str:
        return names.node(self.job.metadata.name, *place)

    @cached_property
    def _places(self) -> tuple[Place, ...]:
        specs, roles = self.resource.spec.replica_resource_specs, self.job.spec.roles
        return tuple((role, n) for role, spec in specs.items() if role in roles for n in spec.indices)

    @cached_property
    def _own(self) -> Mapping[Place, Bytes]:
        """The memory of nodes that have their own; it overrides that of the role."""
        requested = {node.name: _planned_in(node.resource) for node in self.resource.spec.nodes}
        return {place: own for place in self._places if (own := requested.get(self._name(place)))}

    def _present_memory(self, place: Place) -> Bytes | None:
        """The memory of a node now, if it differs from its template."""
        role = self.resource.spec.replica_resource_specs[place[0]]
        return self._own.get(place) or _planned_in(role.resource)

    def _ceiling(self, place: Place) -> Ceiling:
        """The most that each node which grows with this one may have."""
        known = [found for found in (self._by_limits(place), self._by_machines(place)) if found]
        if known:
            return min(known, key=lambda each: each.memory)
        why = f"without resourceLimits.memory a node of {place[0]} gets {CEILING} at most"
        return Ceiling(CEILING, why, "set resourceLimits.memory")

    def _by_machines(self, place: Place) -> Ceiling | None:
        """What the largest machine has for a node, if it has anything."""
        found = self.largest.get(place[0])
        if found is None or not found.memory:
            return None
        why = f"the largest machine for {place[0]}, {found.machine}, has {found.memory}"
        return Ceiling(found.memory, why, "add a larger one, or use less memory")

    def _by_limits(self, place: Place) -> Ceiling | None:
        """What the job's limits leave for each of the nodes that grow together."""
        limits = Resources.parse(self.job.spec.resource_limits)
        if "memory" not in limits:
            return None
        group, pod = self._group(place), self._pod(place)
        count = max(1, self._sizes[group])
        left = _memory_in(limits) - (_memory_in(self._need.total) - pod * count)
        beside = pod - self._main(place)
        each = Bytes(max(0, int(left.value // count - beside.value)))
        name = f"each of {group}" if isinstance(group, str) else self._name(group)
        why = f"resourceLimits.memory {limits['memory']} leaves {each} for {name}"
        return Ceiling(each, why, "raise resourceLimits.memory")

    def _group(self, place: Place) -> Group:
        """The nodes that grow with a node: it alone if it has a memory of its own, else its role."""
        return place if place in self._own else place[0]

    @cached_property
    def _sizes(self) -> Counter[Group]:
        return Counter(map(self._group, self._places))

    @cached_property
    def _need(self) -> Need:
        """What the pods of the job need now."""
        specs = self.resource.spec.replica_resource_specs.items()
        known = {role: spec for role, spec in specs if role in self.job.spec.roles}
        counts = {role: len(spec.indices) for role, spec in known.items()}
        own = {node.name: _text(node.resource) for node in self.resource.spec.nodes}
        return need_of(self.job, counts, {role: _text(spec.resource) for role, spec in known.items()}, own)

    def _pod(self, place: Place) -> Bytes:
        """The memory of a node's pod."""
        return _memory_in(pod_requests(with_resource(self.job.spec.roles[place[0]], self._resource(place))))

    def _main(self, place: Place) -> Bytes:
        """The memory of the pod's main container."""
        main = self.job.spec.roles[place[0]].main_container or {}
        template = _memory_in(container_requests(main))
        return self._present_memory(place) or template

    def _resource(self, place: Place) -> Mapping[str, str]:
        given = self._present_memory(place)
        return {"memory": str(given)} if given else {}


def limit_of(life: Life) -> Bytes | None:
    """Return the limit at which `life` was OOMKilled; None if it ended in another way."""
    end = life.ended
    if end is None or life.terminating or end.reason is not ExitReason.OOM_KILLED or not end.memory:
        return None
    return Bytes.parse(end.memory)


def _planned_in(resource: Mapping[str, Raw]) -> Bytes | None:
    return Bytes.parse(resource["memory"]) if "memory" in resource else None


def _memory_in(amounts: Resources) -> Bytes:
    """The memory in amounts, 0 where they have none."""
    return Bytes(amounts["memory"].value) if "memory" in amounts else Bytes(0)


def _text(amounts: Mapping[str, Raw]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
