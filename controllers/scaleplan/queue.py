"""The sizes of a job in a queue: no more than is admitted, and as many of those asked for as are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.checks.common import node as place_of
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan, plan_manifest
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.kueue.kinds.elasticjob import largest, target
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.scaleplan.fold import (
    Fold,
    Impossible,
    Size,
    as_it_is,
    fold,
    leaving,
    singles,
    sizes_of,
    staying,
)

FOLLOWED: Final = "QueueFollowed"


def asked_with(job: ElasticJob, resource: JobResource, folded: Fold) -> dict[str, int]:
    """Return the sizes that are asked for once a plan is carried out."""
    return {**target(job, resource), **folded.asked}


def follow_queue(
    job: ElasticJob, resource: JobResource, grant: Grant, lives: tuple[Life, ...]
) -> Fold | None:
    """Return the JobResource as its queue allows it; None where it is so already.

    Roles above what is admitted, or was asked for last, lose the nodes whose quota is taken back, then those
    without a pod, then the last. Roles below both grow.
    """
    old = sizes_of(resource)
    new = dict(_follow(job, resource, grant, lives, old))
    if not new:
        return None
    changes = tuple(
        f"{role} replicas {old[role].replicas} to {size.replicas} (queue {grant.queue})"
        for role, size in new.items()
    )
    now = as_it_is(resource)
    return replace(now, sizes={**old, **new}, changes=changes)


def sized_by(job: ElasticJob, plan: ScalePlan) -> list[str]:
    """Return the roles of which a plan changes what nodes get, all of them or single ones."""
    common = {role for role, spec in plan.spec.replica_resource_specs.items() if spec.resource}
    single = (place_of(job.metadata.name, job.spec.roles, name) for name in singles(job, plan))
    return sorted({*common, *(place.role for place in single if place)}.intersection(job.spec.roles))


def lacking(job: ElasticJob, resource: JobResource, role: str, grant: Grant) -> str:
    """Return what nodes of a role are to get and the queue has not admitted yet, "" where it has."""
    return grant.lacking(role, _container(job, role), largest(job, role, resource))


def affordable(job: ElasticJob, folded: Fold, plan: ScalePlan, grant: Grant) -> Fold:
    """Return a JobResource whose nodes get no more of what a plan asks for than any place of the job has."""
    sizes, nodes = dict(folded.sizes), dict(folded.nodes)
    for role in sized_by(job, plan) if grant.admitted else ():
        main = _container(job, role)
        sizes[role] = replace(sizes[role], resource=grant.best(role, main, sizes[role].resource))
        own = [name for name in nodes if place_of(job.metadata.name, (role,), name)]
        nodes |= {name: grant.best(role, main, nodes[name]) for name in own}
    return replace(folded, sizes=sizes, nodes=nodes)


def follow_request(job: ElasticJob, resource: JobResource, lives: tuple[Life, ...]) -> Fold | None:
    """Return the JobResource of a job in no queue with the workers asked for; None where it has them.

    One of an earlier release does not say what is asked for: what it has. The job's own plan says why a
    number cannot be had.
    """
    now, asked = as_it_is(resource), target(job, resource).get(WORKER)
    size = now.sizes.get(WORKER)
    if size is None or size.replicas is None or WORKER not in job.spec.roles:
        return None
    if resource.spec.replicas is None or asked is None:
        return now
    sizes = {"replicaResourceSpecs": {WORKER: {"replicas": asked}}}
    plan = SCALEPLAN.convert(plan_manifest(job.metadata.name, job.key, sizes, None, manual=True))
    try:
        folded = fold(job, resource, plan, lives=lives)
    except Impossible:
        return None
    return folded if folded.changes else None


def number_to_write(job: ElasticJob, resource: JobResource, count: int) -> int:
    """Return the number of workers to write as asked for: an autoscaler's own, where it comes to `count`."""
    own = resource.spec.replicas
    return own if own is not None and job.spec.range_of(WORKER).clamp(own) == count else count


def _container(job: ElasticJob, role: str) -> str:
    return str((job.spec.roles[role].main_container or {}).get("name", ""))


def _follow(
    job: ElasticJob, resource: JobResource, grant: Grant, lives: tuple[Life, ...], old: Mapping[str, Size]
) -> Iterator[tuple[str, Size]]:
    asked = target(job, resource)
    for role, size in old.items():
        if size.replicas is None or role not in job.spec.roles:
            continue
        most = min(grant.most(job, role), asked.get(role, size.replicas))
        if size.replicas > most:
            kept = staying(size.indices, most, leaving(role, grant, lives))
            yield role, replace(size, replicas=len(kept), indices=kept)
        elif grant.admitted and size.replicas < most:
            taken = set(size.indices)
            free = (index for index in range(most + len(taken)) if index not in taken)
            more = [next(free) for _ in range(most - len(taken))]
            yield role, replace(size, replicas=most, indices=tuple(sorted([*size.indices, *more])))
