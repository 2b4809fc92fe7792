"""The spec of a JobResource after a plan, within the bounds and limits of the job."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.need import Need
from elasticjob.api.sizes.need import describe as _told
from elasticjob.api.v1alpha1.checks.common import node as place_of
from elasticjob.api.v1alpha1.common import MOST_NODES
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource, JobResourceSpec
from elasticjob.api.v1alpha1.scaleplan import PodPlan, ScalePlan
from elasticjob.api.v1alpha1.sizing import need_of
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names

Amounts = Mapping[str, str]
TOLD: Final = 4
_INDEX: Final = re.compile(r"(-[0-9]+)+$")
"""The end of the name of a node, or of a pod of it: roles may end in digits, too (h100)."""
COUNTED: Final = " replicas"
"""How the words for the number of nodes of a role end; see `touches`."""


class Impossible(Exception):
    """A plan that cannot be carried out; the message says why, and what would be right."""


@dataclass(frozen=True)
class Size:
    """A role: how many nodes (None = not decided yet), which, and what each gets beside its template."""

    replicas: int | None = None
    resource: Amounts = field(default_factory=dict)
    indices: tuple[int, ...] = ()

    @property
    def vacant(self) -> list[int]:
        """The indices below the last that no node has."""
        return sorted({*range(max(self.indices, default=0))}.difference(self.indices))


@dataclass(frozen=True)
class Fold:
    """The new contents of a JobResource, and the differences in words."""

    sizes: Mapping[str, Size]
    nodes: Mapping[str, Amounts]
    changes: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    """Requests that were not met in full, in words, of roles that keep their number."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """The numbers that were asked for, whatever the queue admits."""

    def applied_to(self, resource: JobResource) -> JobResource:
        """Return a JobResource with these contents."""
        spec = {"selector": {"name": resource.spec.selector.name}, **self.manifest()}
        return resource.model_copy(update={"spec": JobResourceSpec.model_validate(spec)})

    def manifest(self) -> dict[str, Any]:
        """The part of a JobResource's spec that plans decide about."""
        sizes = {
            role: ({} if size.replicas is None else {"replicas": size.replicas})
            | ({"resource": dict(size.resource)} if size.resource else {})
            | ({"vacant": size.vacant} if size.vacant else {})
            for role, size in self.sizes.items()
        }
        nodes = [{"name": name, "resource": dict(resource)} for name, resource in self.nodes.items()]
        return {"replicaResourceSpecs": sizes, "nodes": nodes}


def touches(plan: ScalePlan) -> frozenset[str]:
    """Return what a plan changes, in words that are equal where two plans change the same."""
    sizes = plan.spec.replica_resource_specs.items()
    counted = {f"{role}{COUNTED}" for role, spec in sizes if spec.replicas is not None}
    sized = {f"{role} resource" for role, spec in sizes if spec.resource}
    single = {_role(plan, pod.name, pod.type) for pod in plan.spec.create_pods}
    single |= {_role(plan, pod.name, pod.type) for pod in plan.spec.remove_pods}
    moved = {node.name for node in plan.spec.migrate_pods}
    return frozenset(counted | sized | {f"{role}{COUNTED}" for role in single} | moved)


def sizes_of(resource: JobResource) -> dict[str, Size]:
    """Return the roles of a JobResource."""
    return {
        role: Size(spec.replicas, _text(spec.resource), spec.indices)
        for role, spec in resource.spec.replica_resource_specs.items()
    }


def as_it_is(resource: JobResource) -> Fold:
    """Return a JobResource without a change."""
    nodes = {node.name: _text(node.resource) for node in resource.spec.nodes}
    return Fold(sizes_of(resource), nodes, ())


def staying(indices: Iterable[int], count: int, leaves_first: Callable[[int], Any]) -> tuple[int, ...]:
    """Return which nodes of a role stay where so many do: those with the greatest `leaves_first` go, then
    those with the highest indices."""
    ordered = sorted(indices, key=lambda index: (leaves_first(index), index))
    return tuple(sorted(ordered[: max(0, count)]))


def leaving(role: str, grant: Grant | None, lives: Iterable[Life]) -> Callable[[int], tuple[bool, bool]]:
    """Return who leaves first: nodes whose quota is taken back, then those without a pod."""
    mine = {life.index: life.workload for life in lives if life.role == role and not life.over}
    back = {index for index, name in mine.items() if grant is not None and name not in grant.workloads}
    return lambda index: (index in back, index not in mine)


def fold(
    job: ElasticJob,
    resource: JobResource,
    plan: ScalePlan,
    grant: Grant | None = None,
    lives: tuple[Life, ...] = (),
) -> Fold:
    """Return the contents of `resource` once `plan` is carried out. Raises Impossible.

    Sizes are those that the role may have (api/sizes/role.py), lowered until the job fits its resourceLimits;
    what the plan does not name stays as it is. Of a role that shrinks
    the nodes leave that the plan removes by name, then as `leaving` and `staying` say. A role that grows gets
    the nodes that the plan creates by name, else those with the lowest free indices; one that is there is not
    created again. A job in a queue has no more nodes than `grant` is for.
    """
    old = sizes_of(resource)
    removed = {role: _removals(job, plan, role, old) for role in job.spec.roles}
    added = {role: _additions(job, plan, role, old, removed[role]) for role in job.spec.roles}
    asked = dict(_targets(job, plan, old, added, removed))
    sizes, remarks = dict(old), dict[str, str]()
    for role, size in asked.items():
        allowed, remarks[role] = _permit(job, role, size.replicas)
        if removed[role] and (allowed or 0) > (size.replicas or 0):
            node = names.node(job.metadata.name, role, min(removed[role]))
            raise Impossible(f"{node} cannot be removed: {remarks[role]}")
        sizes[role] = Size(allowed, {**old.get(role, Size()).resource, **size.resource})
    known = {node.name: _text(node.resource) for node in resource.spec.nodes}
    own = known | {node: {**known.get(node, {}), **given} for node, given in singles(job, plan).items()}
    sizes = _within_limits(job, old, sizes, known, own, remarks)
    wanted = {role: sizes[role].replicas or 0 for role in asked if sizes[role].replicas is not None}
    sizes = _within_admission(job, sizes, grant, remarks) if grant else sizes
    sizes = {
        role: _place(
            size,
            old.get(role, Size()),
            added.get(role, ()),
            removed.get(role, frozenset()),
            leaving(role, grant, lives),
        )
        for role, size in sizes.items()
    }
    nodes = _own_resources(job, plan, known, sizes)
    left = (names.node(job.metadata.name, role, index) for role in asked for index in sorted(removed[role]))
    changes = (*_changes(old, sizes, known, nodes, remarks), *(f"{node} removed" for node in left))
    kept = (role for role in asked if sizes[role].replicas == old.get(role, Size()).replicas)
    told = tuple(f"{role}: {remarks[role]}" for role in kept if remarks[role])
    return Fold(sizes, nodes, changes, told, wanted)


def _within_admission(
    job: ElasticJob, sizes: Mapping[str, Size], grant: Grant, remarks: dict[str, str]
) -> dict[str, Size]:
    """Return the sizes, none above what the job's queue has admitted."""
    found = dict(sizes)
    for role, size in sizes.items():
        if role not in job.spec.roles or size.replicas is None:
            continue
        most = grant.most(job, role)
        if size.replicas > most:
            found[role] = replace(size, replicas=most)
            remarks[role] = f"{size.replicas} was asked for, queue {grant.queue} admits {most} now"
    return found


def _removals(job: ElasticJob, plan: ScalePlan, role: str, old: Mapping[str, Size]) -> frozenset[int]:
    """The indices of nodes of a role that the plan removes by name. Raises Impossible."""
    found = set[int]()
    for pod in plan.spec.remove_pods:
        if _role(plan, pod.name, pod.type) != role:
            continue
        place, there = place_of(job.metadata.name, (role,), pod.name), old.get(role, Size()).indices
        if place is None or place.index not in there:
            known = ", ".join(names.node(job.metadata.name, role, index) for index in there[:TOLD])
            raise Impossible(f"there is no node {pod.name!r}: name one of {known}, …")
        found.add(place.index)
    return frozenset(found)


def _additions(
    job: ElasticJob, plan: ScalePlan, role: str, old: Mapping[str, Size], removed: frozenset[int]
) -> tuple[int | None, ...]:
    """The indices of nodes of a role that the plan creates by name; None for one that may be anywhere."""
    found = list[int | None]()
    there = set(old.get(role, Size()).indices).difference(removed)
    for pod in plan.spec.create_pods:
        if _role(plan, pod.name, pod.type) != role:
            continue
        index = _index(job, role, pod)
        if index is None or index not in there.union(found):
            found.append(index)
    return tuple(found)


def _index(job: ElasticJob, role: str, pod: PodPlan) -> int | None:
    """The index of a node to create: as said, else as in its name."""
    place = place_of(job.metadata.name, (role,), pod.name)
    index = pod.rank_index if pod.rank_index is not None else place.index if place else None
    return index if index is not None and index < MOST_NODES else None


def _place(
    size: Size,
    before: Size,
    added: tuple[int | None, ...],
    gone: frozenset[int],
    leaves_first: Callable[[int], Any],
) -> Size:
    """Return a size with its nodes: those that stay, and where it grows those that are named, then the lowest
    free indices."""
    stay = staying({*before.indices} - gone, size.replicas or 0, leaves_first)
    named = [index for index in added if index is not None and index not in gone]
    new, taken = (size.replicas or 0) - len(stay), gone.union(stay, named)
    free = [index for index in range(len(taken) + max(new, 0)) if index not in taken]
    return replace(size, indices=tuple(sorted([*stay, *[*named, *free][: max(new, 0)]])))


def _targets(
    job: ElasticJob,
    plan: ScalePlan,
    old: Mapping[str, Size],
    added: Mapping[str, tuple[int | None, ...]],
    removed: Mapping[str, frozenset[int]],
) -> Iterator[tuple[str, Size]]:
    """The size that the plan asks for each role it names; createPods and removePods count up and down."""
    come = [_role(plan, pod.name, pod.type) for pod in plan.spec.create_pods]
    leave = [_role(plan, pod.name, pod.type) for pod in plan.spec.remove_pods]
    named = dict.fromkeys((*plan.spec.replica_resource_specs, *come, *leave))
    for role in named:
        _check(job, plan, role)
        spec = plan.spec.replica_resource_specs.get(role)
        now = old.get(role, Size()).replicas
        asked = spec.replicas if spec is not None and spec.replicas is not None else now
        if role in come or role in leave:
            asked = (asked or 0) + len(added[role]) - len(removed[role])
        yield role, Size(asked, _text(spec.resource) if spec is not None else {})


def _check(job: ElasticJob, plan: ScalePlan, role: str) -> None:
    known = job.spec.roles
    if role not in known:
        raise Impossible(
            f"job {job.metadata.name} has no role {role!r}: its roles are {', '.join(sorted(known))}"
        )
    if not plan.manual and not known[role].auto_scale:
        raise Impossible(f"role {role} has autoScale: false, so only a manual plan may change it")


def _permit(job: ElasticJob, role: str, count: int | None) -> tuple[int | None, str]:
    """The number of nodes for a request of `count`, and a sentence where it differs."""
    if count is None:
        return None, ""
    range_ = job.spec.range_of(role)
    allowed = range_.clamp(count)
    return allowed, "" if allowed == count else f"{count} was asked for, {range_} is allowed"


def _within_limits(
    job: ElasticJob,
    old: Mapping[str, Size],
    sizes: Mapping[str, Size],
    before: Mapping[str, Amounts],
    own: Mapping[str, Amounts],
    remarks: dict[str, str],
) -> dict[str, Size]:
    """Lower the sizes that would grow until the job fits its limits. Raises Impossible."""
    limits = Resources.parse(job.spec.resource_limits)
    wanted, now = _need(job, sizes, own), _need(job, old, before)
    found = wanted.within(limits, now, {role: job.spec.range_of(role) for role in wanted.roles})
    if over := found.over(limits, now):
        raise Impossible(f"the job would need {_told(over)}: raise spec.resourceLimits, or ask for less")
    lowered = {role: nodes.count for role, nodes in found.roles.items() if nodes != wanted.roles[role]}
    remarks |= dict.fromkeys(lowered, f"more would need {_told(wanted.over(limits, now))}")
    return {**sizes, **{role: replace(sizes[role], replicas=count) for role, count in lowered.items()}}


def _need(job: ElasticJob, sizes: Mapping[str, Size], own: Mapping[str, Amounts]) -> Need:
    known = {role: size for role, size in sizes.items() if role in job.spec.roles}
    counts = {role: size.replicas or 0 for role, size in known.items()}
    return need_of(job, counts, {role: size.resource for role, size in known.items()}, own)


def _own_resources(
    job: ElasticJob, plan: ScalePlan, known: Mapping[str, Amounts], sizes: Mapping[str, Size]
) -> dict[str, Amounts]:
    """The nodes with resources of their own, without those that are no longer there."""
    there = {
        names.node(job.metadata.name, role, index) for role, size in sizes.items() for index in size.indices
    }
    nodes: dict[str, Amounts] = dict(known)
    created = _creations(job, plan)
    for name, resource in singles(job, plan).items():
        if name in created and name not in there:
            continue  # bounds or limits left no room for it
        node = _node(name, there)
        if node is None:
            raise Impossible(f"there is no node {name!r}: name one of {', '.join(sorted(there)[:TOLD])}, …")
        nodes[node] = {**nodes.get(node, {}), **resource}
    return {name: resource for name, resource in nodes.items() if name in there}


def singles(job: ElasticJob, plan: ScalePlan) -> dict[str, Amounts]:
    """The resources of single nodes or pods in a plan."""
    return _creations(job, plan) | {moved.name: _text(moved.resource) for moved in plan.spec.migrate_pods}


def _creations(job: ElasticJob, plan: ScalePlan) -> dict[str, Amounts]:
    """The resources of the nodes that a plan creates, by their names."""
    found = dict[str, Amounts]()
    for pod in (pod for pod in plan.spec.create_pods if pod.resource):
        role = _role(plan, pod.name, pod.type)
        index = _index(job, role, pod)
        found[pod.name if index is None else names.node(job.metadata.name, role, index)] = _text(pod.resource)
    return found


def _node(name: str, there: set[str]) -> str | None:
    """The node that a node's or a pod's name means: a relaunched pod's ends in the number of the relaunch."""
    if name in there:
        return name
    shorter, _, number = name.rpartition("-")
    return shorter if number.isdecimal() and shorter in there else None


def _role(plan: ScalePlan, name: str, remark: str) -> str:
    """The role of a pod: as said, else the part of its name between the job's name and the index."""
    return remark.lower() or _INDEX.sub("", name.removeprefix(f"{plan.spec.owner_job}-"))


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


def _text(resource: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in resource.items()}
