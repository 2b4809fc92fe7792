"""The spec of a JobResource after a plan, within the bounds and limits of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elasticjob.api.resources import Excess, Resources, pod_requests
from elasticjob.api.v1alpha1.common import WORKER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ReplicaSpec
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers import names
from elasticjob.controllers.jobresource.pods import resources_of
from elasticjob.kube.objects.kinds import Manifest

Amounts = Mapping[str, str]
TOLD: Final = 4


class Impossible(Exception):
    """A plan that cannot be carried out; the message says why, and what would be right."""


@dataclass(frozen=True)
class Size:
    """A role: how many nodes (None = not decided yet), and what each gets beside its template."""

    replicas: int | None = None
    resource: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class Folded:
    """The new contents of a JobResource, and the differences in words."""

    sizes: Mapping[str, Size]
    nodes: Mapping[str, Amounts]
    changes: tuple[str, ...]

    def manifest(self) -> dict[str, Any]:
        """The part of a JobResource's spec that plans decide about."""
        sizes = {
            role: ({} if size.replicas is None else {"replicas": size.replicas})
            | ({"resource": dict(size.resource)} if size.resource else {})
            for role, size in self.sizes.items()
        }
        nodes = [{"name": name, "resource": dict(resource)} for name, resource in self.nodes.items()]
        return {"replicaResourceSpecs": sizes, "nodes": nodes}


def touches(plan: ScalePlan) -> frozenset[str]:
    """Return what a plan changes, in words that are equal where two plans change the same."""
    sizes = plan.spec.replica_resource_specs.items()
    counted = {f"{role} replicas" for role, spec in sizes if spec.replicas is not None}
    sized = {f"{role} resource" for role, spec in sizes if spec.resource}
    single = {_role(plan, pod.name, pod.type) for pod in plan.spec.create_pods}
    single |= {_role(plan, pod.name, pod.type) for pod in plan.spec.remove_pods}
    moved = {node.name for node in plan.spec.migrate_pods}
    return frozenset(counted | sized | {f"{role} replicas" for role in single} | moved)


def fold(job: ElasticJob, resource: JobResource, plan: ScalePlan) -> Folded:
    """Return the contents of `resource` once `plan` is carried out. Raises Impossible.

    Sizes are clamped to the role's bounds, rounded down to a multiple of nodeUnit (workers), and lowered
    until the job fits its resourceLimits; what the plan does not name stays as it is.
    """
    old = {
        role: Size(spec.replicas, _text(spec.resource))
        for role, spec in resource.spec.replica_resource_specs.items()
    }
    asked = dict(_asked(job, plan, old))
    sizes, remarks = dict(old), dict[str, str]()
    for role, size in asked.items():
        count, remarks[role] = _within_bounds(job, role, size.replicas)
        sizes[role] = Size(count, {**old.get(role, Size()).resource, **size.resource})
    sizes = _within_limits(job, old, sizes, remarks)
    known = {node.name: _text(node.resource) for node in resource.spec.nodes}
    nodes = _moved(job, plan, known, sizes)
    return Folded(sizes, nodes, tuple(_changes(old, sizes, known, nodes, remarks)))


def _asked(job: ElasticJob, plan: ScalePlan, old: Mapping[str, Size]) -> Iterator[tuple[str, Size]]:
    """The size that the plan asks for each role it names; createPods and removePods count up and down."""
    added = [_role(plan, pod.name, pod.type) for pod in plan.spec.create_pods]
    removed = [_role(plan, pod.name, pod.type) for pod in plan.spec.remove_pods]
    named = dict.fromkeys((*plan.spec.replica_resource_specs, *added, *removed))
    for role in named:
        _check(job, plan, role)
        spec = plan.spec.replica_resource_specs.get(role)
        now = old.get(role, Size()).replicas
        count = spec.replicas if spec is not None and spec.replicas is not None else now
        if role in added or role in removed:
            count = (count or 0) + added.count(role) - removed.count(role)
        yield role, Size(count, _text(spec.resource) if spec is not None else {})


def _check(job: ElasticJob, plan: ScalePlan, role: str) -> None:
    known = job.spec.roles
    if role not in known:
        raise Impossible(
            f"job {job.metadata.name} has no role {role!r}: its roles are {', '.join(sorted(known))}"
        )
    if not plan.manual and not known[role].auto_scale:
        raise Impossible(f"role {role} has autoScale: false, so only a manual plan may change it")


def _within_bounds(job: ElasticJob, role: str, count: int | None) -> tuple[int | None, str]:
    if count is None:
        return None, ""
    least, most = bounds = job.spec.roles[role].bounds
    allowed = bounds.clamp(count)
    unit = job.spec.node_unit if role == WORKER else 1
    allowed = max(allowed - allowed % unit, least)
    if allowed == count:
        return count, ""
    range_ = f"{least} to {most}" if most is not None else f"{least} or more"
    return allowed, f"{count} was asked for, {range_}{f' by {unit}' if unit > 1 else ''} is allowed"


def _within_limits(
    job: ElasticJob, old: Mapping[str, Size], sizes: dict[str, Size], remarks: dict[str, str]
) -> dict[str, Size]:
    """Lower the sizes that would grow until the job fits its limits. Raises Impossible."""
    unit = {role: job.spec.node_unit if role == WORKER else 1 for role in sizes}
    while over := _total(job, sizes).over(Resources.parse(job.spec.resource_limits)):
        role = next(
            (role for role, size in sizes.items() if _may_shrink(job, old, role, size, unit[role])), None
        )
        if role is None:
            raise Impossible(f"the job would need {_told(over)}: raise spec.resourceLimits, or ask for less")
        count = sizes[role].replicas or 0
        sizes = {**sizes, role: Size(count - unit[role], sizes[role].resource)}
        remarks[role] = f"more would need {_told(over)}"
    return sizes


def _may_shrink(job: ElasticJob, old: Mapping[str, Size], role: str, size: Size, unit: int) -> bool:
    """Whether a role grows by this plan, so that it may grow less."""
    before = old.get(role, Size()).replicas
    least = max(job.spec.roles[role].bounds.least, before or 0)
    return size.replicas is not None and size.replicas - unit >= least


def _total(job: ElasticJob, sizes: Mapping[str, Size]) -> Resources:
    total = Resources({})
    for role, size in sizes.items():
        spec = job.spec.roles.get(role)
        if spec is None or not size.replicas:
            continue
        total = total + pod_requests(_sized(spec, size.resource)) * size.replicas
    return total


def _sized(spec: ReplicaSpec, resource: Amounts) -> dict[str, Any]:
    """The role's pod spec, whose training container gets `resource`."""
    main = spec.main_container
    given: list[Manifest] = spec.pod.get("containers") or []
    containers = [{**c, "resources": resources_of(c, resource)} if c is main else c for c in given]
    return {**spec.pod, "containers": containers}


def _moved(
    job: ElasticJob, plan: ScalePlan, known: Mapping[str, Amounts], sizes: Mapping[str, Size]
) -> dict[str, Amounts]:
    """The nodes with resources of their own, without those that are no longer there."""
    there = {
        names.node(job.metadata.name, role, index)
        for role, size in sizes.items()
        for index in range(size.replicas or 0)
    }
    given = {pod.name: pod.resource for pod in plan.spec.create_pods if pod.resource}
    given |= {pod.name: pod.resource for pod in plan.spec.migrate_pods}
    nodes = dict(known)
    for name, resource in given.items():
        node = _node(name, there)
        if node is None:
            raise Impossible(f"there is no node {name!r}: name one of {', '.join(sorted(there)[:TOLD])}, …")
        nodes[node] = {**nodes.get(node, {}), **_text(resource)}
    return {name: resource for name, resource in nodes.items() if name in there}


def _node(name: str, there: set[str]) -> str | None:
    """The node that a node's or a pod's name means: a relaunched pod's ends in the number of the relaunch."""
    if name in there:
        return name
    shorter, _, number = name.rpartition("-")
    return shorter if number.isdecimal() and shorter in there else None


def _role(plan: ScalePlan, name: str, remark: str) -> str:
    """The role of a pod: as said, else the part of its name between the job's name and the index."""
    rest = name.removeprefix(f"{plan.spec.owner_job}-")
    return remark or rest.rstrip("0123456789-")


def _changes(
    old: Mapping[str, Size],
    new: Mapping[str, Size],
    nodes_before: Mapping[str, Amounts],
    nodes: Mapping[str, Amounts],
    remarks: Mapping[str, str],
) -> Iterator[str]:
    for role, size in new.items():
        before = old.get(role, Size())
        remark = f" ({said})" if (said := remarks.get(role)) else ""
        if size.replicas != before.replicas:
            yield f"{role} replicas {before.replicas or 0} to {size.replicas}{remark}"
        for name, amount in size.resource.items():
            if amount != before.resource.get(name):
                yield f"{role} {name} {before.resource.get(name, 'of the template')} to {amount}"
    for node, resource in nodes.items():
        for name, amount in resource.items():
            if amount != nodes_before.get(node, {}).get(name):
                yield f"{node} {name} to {amount}"


def _told(over: tuple[Excess, ...]) -> str:
    return ", ".join(f"{excess.wanted} {excess.name} of {excess.limit}" for excess in over)


def _text(resource: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in resource.items()}
