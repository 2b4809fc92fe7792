"""The sizes that the user asks for, as ScalePlans and as annotations of the JobResource."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_SCALE_TYPE
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.elasticjob.objects import asked, remembered_gang, written
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.plan import Apply, Create
from elasticjob.kube.objects.kinds import Manifest


def asked_anew(seen: Seen) -> dict[str, int]:
    """The sizes that the user asks for since they were last carried out."""
    return {role: count for role, count in asked(seen.job).items() if seen.last_requested.get(role) != count}


def out_of_bounds(seen: Seen, name: str) -> dict[str, int]:
    """The nearest allowed sizes of roles that are out of bounds, unless plan `name` exists already."""
    if any(plan.metadata.name == name for plan in seen.plans):
        return {}
    nearest = {role: seen.job.spec.range_of(role).clamp(count) for role, count in seen.sizes.items()}
    return {role: count for role, count in nearest.items() if count != seen.sizes[role]}


def suspension(seen: Seen) -> tuple[Apply, ...]:
    """Return the write that copies `suspend` to the JobResource, if it differs there."""
    if seen.resource is None or seen.resource.spec.suspend == seen.job.spec.suspend:
        return ()
    return (_applied_fields(seen, seen.last_asked, seen.asked_at, seen.gang),)


def remembered(seen: Seen) -> Apply:
    """Return the write that remembers what the user asks for as carried out."""
    return _applied_fields(seen, asked(seen.job), seen.job.metadata.generation, seen.gang)


def regrouped(seen: Seen, gang: Gang | None) -> Apply:
    """Return the write that remembers a gang as it has become, and `suspend` as the user has it."""
    return _applied_fields(seen, seen.last_asked, seen.asked_at, gang)


def _applied_fields(seen: Seen, sizes: Mapping[str, int], generation: int, gang: Gang | None) -> Apply:
    """Return all fields of an existing JobResource that this controller applies; the others come from plans.

    Without a gang the annotation is set to "": server-side apply would leave another manager's value.
    """
    had_one = seen.resource is not None and names.GANG in seen.resource.metadata.annotations
    job = seen.job.metadata
    metadata = {
        "name": job.name,
        "namespace": job.namespace,
        "uid": seen.resource.metadata.uid if seen.resource else "",
        "annotations": {
            names.ASKED: written(sizes),
            names.ASKED_AT: str(generation),
            **({names.GANG: ""} if had_one else {}),
            **remembered_gang(gang),
        },
    }
    spec = {"selector": {"name": job.name}, "suspend": seen.job.spec.suspend}
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
