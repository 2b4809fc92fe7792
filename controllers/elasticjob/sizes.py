"""The sizes that the user asks for, as ScalePlans and as annotations of the JobResource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_SCALE_TYPE
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.order import user_plan
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase
from elasticjob.controllers.elasticjob.objects import (
    made_from,
    remembered_gang,
    sizes_of_user,
    template_amounts,
    written_amounts,
    written_flag,
)
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.conclusions import why_impossible
from elasticjob.controllers.passes.plan import Apply, Create
from elasticjob.kube.objects.kinds import Manifest


@dataclass(frozen=True)
class Wish:
    """Sizes that roles should have, the plan for them, and how its reason begins."""

    plan: str
    sizes: Mapping[str, int]
    who: str


def asked_anew(seen: Seen) -> dict[str, int]:
    """The sizes that the user asks for since they were last carried out."""
    return {
        role: count
        for role, count in sizes_of_user(seen.job).items()
        if seen.last_requested.get(role) != count
    }


def still_asked(seen: Seen) -> dict[str, int]:
    """The sizes that the user asks for and the newest plan for them has not given, when it is worth a try.

    That is where the job has changed since the plan was impossible, and where a plan that is no newer
    superseded it.
    """
    plan = seen.newest_request
    if plan is None or plan.status.phase not in (PlanPhase.FAILED, PlanPhase.SUPERSEDED):
        return {}
    if plan.status.phase is PlanPhase.FAILED:
        again = bool(why_impossible(plan)) and seen.job.metadata.generation > seen.generation_of(plan)
    else:
        again = not any(newer.manual for newer in seen.plans[seen.plans.index(plan) + 1 :])
    sizes = sizes_of_user(seen.job)
    specs = plan.spec.replica_resource_specs.items()
    roles = [role for role, spec in specs if again and spec.replicas == sizes.get(role, -1)]
    given = {role: seen.job.spec.range_of(role).clamp(sizes[role]) for role in roles}
    return {role: sizes[role] for role in roles if seen.sizes.get(role) != given[role]}


def out_of_bounds(seen: Seen) -> dict[str, int]:
    """The nearest allowed sizes of roles that are out of bounds."""
    nearest = {role: seen.job.spec.range_of(role).clamp(count) for role, count in seen.sizes.items()}
    return {role: count for role, count in nearest.items() if count != seen.sizes[role]}


def wishes(seen: Seen) -> Iterator[Wish]:
    """The sizes that the user asks for, then those that bring roles within their bounds, each by a plan."""
    job, generation = seen.job.metadata, seen.job.metadata.generation
    nodes = seen.resource.metadata.generation if seen.resource else 0
    name, made = user_plan(job.name, generation), {plan.metadata.name for plan in seen.plans}
    yield Wish(name, asked_anew(seen), "the user asks for")
    again = Wish(f"{name}-{nodes}" if name in made else name, still_asked(seen), "the user still asks for")
    bounds = names.bounds_plan(job.name, generation, nodes)
    yield from (
        each
        for each in (again, Wish(bounds, out_of_bounds(seen), "the nearest allowed size is"))
        if each.plan not in made
    )


@dataclass(frozen=True)
class Notes:
    """What the job's controller keeps in the JobResource: what it has done of what the user asks for."""

    sizes: Mapping[str, int]
    generation: int
    gang: Gang | None
    templates: Mapping[str, Mapping[str, str]]
    made_from: str
    token: str
    network: bool
    suspend: bool

    @classmethod
    def of(cls, seen: Seen) -> Notes:
        """What is kept now; templates of a JobResource of an earlier release are as they are now."""
        known, resource = seen.last_templates, seen.resource
        return cls(
            sizes=seen.last_asked,
            generation=seen.asked_at,
            gang=seen.gang,
            templates=template_amounts(seen.job) if known is None else known,
            made_from=seen.made_from or made_from(seen.job),
            token=resource.metadata.annotations.get(names.TOKEN, "") if resource else "",
            network=seen.has_network_policy,
            suspend=resource.spec.suspend if resource else seen.job.spec.suspend,
        )


def suspension(seen: Seen) -> tuple[Apply, ...]:
    """Return the write that copies `suspend` to the JobResource, if it differs there."""
    if seen.resource is None or seen.resource.spec.suspend == seen.job.spec.suspend:
        return ()
    return (all_fields(seen, suspend=seen.job.spec.suspend),)


def write_request(seen: Seen) -> Apply:
    """Return the write that remembers what the user asks for as carried out."""
    return all_fields(seen, sizes=sizes_of_user(seen.job), generation=seen.job.metadata.generation)


def write_gang(seen: Seen, gang: Gang | None) -> Apply:
    """Return the write that remembers a gang as it has become, what nodes are made from, and `suspend`."""
    return all_fields(seen, gang=gang, made_from=made_from(seen.job), suspend=seen.job.spec.suspend)


def all_fields(seen: Seen, **changes: Any) -> Apply:
    """Return all fields of an existing JobResource that this controller applies; the others come from plans.

    Without a gang the annotation is set to "": server-side apply would leave another manager's value.
    """
    now = replace(Notes.of(seen), **changes)
    had_gang = seen.resource is not None and names.GANG in seen.resource.metadata.annotations
    job = seen.job.metadata
    metadata = {
        "name": job.name,
        "namespace": job.namespace,
        "uid": seen.resource.metadata.uid if seen.resource else "",
        "annotations": {
            names.ASKED: names.written(now.sizes),
            names.ASKED_AT: str(now.generation),
            names.TEMPLATES: written_amounts(now.templates),
            names.MADE_FROM: now.made_from,
            **({names.TOKEN: now.token} if now.token else {}),
            names.NETWORK: written_flag(now.network),
            **({names.GANG: ""} if had_gang else {}),
            **remembered_gang(now.gang),
        },
    }
    spec = {"selector": {"name": job.name}, "suspend": now.suspend}
    return Apply(JOBRESOURCE, manifest_of(JOBRESOURCE, metadata, spec=spec))


def scale_plan(seen: Seen, name: str, changes: Manifest, reason: str, *, manual: bool) -> Create:
    """Return a ScalePlan of this job; a plan of the same name is the same plan, so it is made once."""
    job = seen.job.metadata
    kind = "manual" if manual else "auto"
    metadata = {
        "name": name,
        "namespace": job.namespace,
        "labels": {LABEL_JOB: job.name, LABEL_SCALE_TYPE: kind},
        "ownerReferences": [controlled_by(seen.job)],
    }
    spec = {"ownerJob": job.name, **changes, "manualScaling": manual, "reason": reason}
    return Create(SCALEPLAN, manifest_of(SCALEPLAN, metadata, spec=spec))
