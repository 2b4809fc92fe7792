"""What a job needs and the cluster lacks, told before it is created: objects, and room in ResourceQuotas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from elasticjob.api import belongings
from elasticjob.api.resources import NOTHING, MalformedQuantity, Resources, pod_requests
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.kueue import queue_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, SECRET, SERVICE_ACCOUNT

PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", dict, namespaced=False)
RUNTIME_CLASS = Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", dict, namespaced=False)
LOCAL_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues", dict)
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", dict)
FIELDS: Final[Mapping[str, Kind[Any]]] = {
    **belongings.FIELDS,
    "claimName": PERSISTENT_VOLUME_CLAIM,
    "lowPriorityClassName": PRIORITY_CLASS,
    "priorityClassName": PRIORITY_CLASS,
    "runtimeClassName": RUNTIME_CLASS,
}
"""Fields of a job that name what must be there, unless `optional` stands beside it."""
WITHOUT: Final[Mapping[Kind[Any], str]] = {
    **dict.fromkeys((PERSISTENT_VOLUME_CLAIM, CONFIG_MAP, SECRET), "pods wait until it is there"),
    **dict.fromkeys((SERVICE_ACCOUNT, PRIORITY_CLASS, RUNTIME_CLASS), "no pod is made until it is there"),
    LOCAL_QUEUE: "with Kueue, the job waits until it is there",
}
"""What becomes of a job without such an object."""
SECONDS: Final = 3.0
"""How long the API server is asked: the answers are a courtesy."""

Name = tuple[Kind[Any], str]
There = Mapping[Name, bool]
"""Which objects exist. Those that may not be read are left out."""


def needs(job: ElasticJob) -> list[Name]:
    """Return what a job names, each once."""
    places = (*belongings.parts(job), ("", job.spec.run_policy.scheduling.manifest()))
    named = (each for place in places for each in belongings.named(*place, FIELDS, optional=False))
    found = dict.fromkeys((each.kind, each.name) for each in named)
    return [each for each in (*found, (LOCAL_QUEUE, queue_of(job))) if each[1]]


def missing(job: ElasticJob, there: There, quotas: Iterable[Manifest] = ()) -> list[str]:
    """Return a sentence for each object that a job needs and is not there, and each quota without room."""
    place = f"namespace {job.metadata.namespace}"
    absent = (each for each in needs(job) if there.get(each) is False)
    found = [
        f"{kind.name} {name} is not in {place if kind.namespaced else 'the cluster'}: {WITHOUT[kind]}"
        for kind, name in absent
    ]
    with contextlib.suppress(MalformedQuantity):  # the API server says it better
        found += _short(_start(job), quotas)
    return found


def _short(asked: Resources, quotas: Iterable[Manifest]) -> Iterator[str]:
    """Sentences about quotas of all pods that have less left than is asked for."""
    for quota in quotas:
        if {"scopes", "scopeSelector"} & quota["spec"].keys():
            continue
        hard, used = (_requests(quota.get("status", {}).get(each, {})) for each in ("hard", "used"))
        for each in (asked + used).over(hard):
            if each.name in asked:
                taken = f"{used.get(each.name, 0)} of {each.limit} {each.name} in use"
                yield (
                    f"ResourceQuota {quota['metadata']['name']} has {taken}, and the job starts with "
                    f"{asked[each.name]}: pods that do not fit are made when there is room"
                )


def _requests(amounts: Mapping[str, str]) -> Resources:
    """What a quota says of requests and of the number of pods."""
    plain = {name.removeprefix("requests.").removeprefix("count/"): each for name, each in amounts.items()}
    return Resources.parse({name: each for name, each in plain.items() if "." not in name or "/" in name})


def _start(job: ElasticJob) -> Resources:
    """What the pods ask for with which a job starts; of its master only that it is one."""
    one = Resources.parse({"pods": 1})
    asked = one if job.spec.needs_master else NOTHING
    for spec in job.spec.roles.values():
        asked = asked + (pod_requests(spec.pod) + one) * spec.initial
    return asked


async def read(kube: Client, job: ElasticJob) -> tuple[dict[Name, bool], list[Manifest]]:
    """Return what there is of a job's needs, and the ResourceQuotas: what is answered in time."""
    place, there, quotas = job.metadata.namespace, dict[Name, bool](), list[Manifest]()

    async def look(kind: Kind[Any], name: str) -> None:
        with contextlib.suppress(KubeError):
            found = await kube.find(kind.untyped(), name, place if kind.namespaced else "")
            there[kind, name] = found is not None

    async def look_at_quotas() -> None:
        with contextlib.suppress(KubeError):
            quotas.extend(await kube.list(RESOURCE_QUOTA, place))

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(look_at_quotas(), *(look(*each) for each in needs(job)))
    return there, quotas
