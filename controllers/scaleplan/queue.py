"""The sizes of a job in a queue: no more than is admitted, and as many of those asked for as are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.kueue.kinds.elasticjob import wanted
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.scaleplan.fold import Folded, Size, as_it_is, sizes_of

FOLLOWED: Final = "QueueFollowed"


def asked_with(job: ElasticJob, resource: JobResource, folded: Folded) -> dict[str, int]:
    """Return the sizes that are asked for once a plan is carried out."""
    return {**wanted(job, resource), **folded.asked}


def followed(job: ElasticJob, resource: JobResource, grant: Grant, lives: tuple[Life, ...]) -> Folded | None:
    """Return the JobResource as its queue allows it; None where it is so already.

    Roles above what is admitted lose the nodes whose quota is taken back, then those without a pod, then the
    last. Roles below what was asked for grow into what is admitted.
    """
    old = sizes_of(resource)
    new = dict(_followed(job, resource, grant, lives, old))
    if not new:
        return None
    changes = tuple(
        f"{role} replicas {old[role].replicas} to {size.replicas} (queue {grant.queue})"
        for role, size in new.items()
    )
    now = as_it_is(resource)
    return replace(now, sizes={**old, **new}, changes=changes)


def _followed(
    job: ElasticJob, resource: JobResource, grant: Grant, lives: tuple[Life, ...], old: Mapping[str, Size]
) -> Iterator[tuple[str, Size]]:
    asked = wanted(job, resource)
    for role, size in old.items():
        if size.replicas is None or role not in job.spec.roles:
            continue
        most = grant.most(job, role)
        if size.replicas > most:
            yield role, _less(size, most, role, grant, lives)
        elif grant.admitted and size.replicas < (count := min(most, asked.get(role, 0))):
            taken = set(size.indices)
            free = (index for index in range(count + len(taken)) if index not in taken)
            more = [next(free) for _ in range(count - len(taken))]
            yield role, replace(size, replicas=count, indices=tuple(sorted([*size.indices, *more])))


def _less(size: Size, most: int, role: str, grant: Grant, lives: tuple[Life, ...]) -> Size:
    running = {life.index: life.workload for life in lives if life.role == role and not life.over}

    def stays(index: int) -> tuple[bool, bool, int]:
        """The last of these go first."""
        found = running.get(index)
        return found is not None and found not in grant.workloads, found is None, index

    kept = sorted(size.indices, key=stays)[: max(0, most)]
    return replace(size, replicas=len(kept), indices=tuple(sorted(kept)))
