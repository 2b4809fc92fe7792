"""Which API places a job's gang, and what it is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from elasticjob.api.v1alpha1 import gangs
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.elasticjob import Gang as Word
from elasticjob.controllers.parts.gangs.apis import APIS, Api, api_of
from elasticjob.controllers.parts.gangs.gang import Gang


def possible(job: ElasticJob) -> tuple[Api, ...]:
    """Return the APIs that can place a job's gang, the preferred one first; none for a job without a gang."""
    word, needed = job.spec.run_policy.scheduling.gang, gangs.needs(job)
    meant = (api for api in APIS if word in (api.word, *gangs.ANY))
    return tuple(api for api in meant if needed <= gangs.OFFERS[api.word])


def chosen(job: ElasticJob, served: Collection[str]) -> Api | None:
    """Return the first possible API of those that the cluster serves, named by group and version."""
    return next((api for api in possible(job) if api.name in served), None)


def gang_of(job: ElasticJob, api: Api, sizes: Mapping[str, int], scheduler: str = "") -> Gang:
    """Return the gang of a job whose roles have so many nodes: it waits for no more than there are."""
    scheduling = job.spec.run_policy.scheduling
    least = {role: min(job.spec.range_of(role).lowest, sizes[role]) for role in sorted(job.spec.roles)}
    asked = sum(least.values()) if scheduling.min_available is None else scheduling.min_available
    by_role = api.word is Word.VOLCANO and scheduling.min_available is None
    classes = sorted(gangs.classes(job))
    return Gang(
        api=api.name,
        name=job.metadata.name,
        least=max(1, min(asked, sum(sizes.values()))),
        roles={role: count for role, count in least.items() if count} if by_role else {},
        queue=scheduling.queue,
        priority_class_name=classes[0] if len(classes) == 1 else scheduling.priority_class_name,
        timeout_seconds=scheduling.timeout_seconds,
        scheduler=scheduler if api.word is Word.COSCHEDULING else "",
    )


def follow(made: Gang, job: ElasticJob, sizes: Mapping[str, int]) -> Gang:
    """Return the gang that was made, as the job asks for it now, as far as its API lets it change."""
    api = api_of(made)
    wanted = gang_of(job, api, sizes, made.scheduler)
    return structs.replace(wanted, name=made.name, **{field: getattr(made, field) for field in api.fixed})


def absence(job: ElasticJob) -> str:
    """Return the sentence that says which APIs the cluster lacks."""
    lacking = ", ".join(f"{api.kinds[-1].name} of {api.name}" for api in possible(job))
    word = job.spec.run_policy.scheduling.gang
    return f"gang {word}: the cluster does not serve {lacking or 'an API that has all that is asked'}"
