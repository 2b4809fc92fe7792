"""Informer caches that a test fills."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.observe import Caches
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Listed, Synced, Upserted
from elasticjob.kube.cache.wire import Item, item_of
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD, SERVICE
from lab.build.objects import as_item


def raw(thing: ElasticJob | JobResource | ScalePlan | Manifest) -> Item:
    """An object as a cache holds it; another state has another version."""
    made = (
        thing if isinstance(thing, dict) else thing.model_dump(by_alias=True, exclude_none=True, mode="json")
    )
    version = str(crc32(msgspec.json.encode(made)))
    return item_of(
        msgspec.json.encode({**made, "metadata": {**made["metadata"], "resourceVersion": version}})
    )


def cache(kind: Kind[Any], *objects: Manifest) -> Cache[Any]:
    """A cache in step with a server that has these objects."""
    made: Cache[Any] = Cache(kind)
    for event in (Listed(tuple(map(as_item, objects))), Synced("1")):
        made.tell(made.take(event))
    made.advanced()
    return made


def caches(*found: tuple[Kind[Any], Item]) -> Caches:
    kinds = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, POD, SERVICE, NODE)
    made: dict[str, Cache[Any]] = {kind.resource: Cache(kind) for kind in kinds}
    for kind, item in found:
        made[kind.resource].take(Upserted(item))
    return Caches(*(made[kind.resource] for kind in kinds))


def machine(
    name: str = "m1",
    ready: str = "True",
    *,
    metadata: Manifest | None = None,
    status: Manifest | None = None,
    **spec: Any,
) -> Item:
    """A Node; without `ready` it says nothing about that."""
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    about = {"name": name, "uid": name, **(metadata or {})}
    return raw({"metadata": about, "spec": spec, "status": {"conditions": conditions, **(status or {})}})


def pod(
    index: int = 0,
    *,
    labels: Manifest | None = None,
    metadata: Manifest | None = None,
    spec: Manifest | None = None,
    status: Manifest | None = None,
    owner: Manifest | None = None,
) -> Item:
    by = {"apiVersion": JOBRESOURCE.api_version, "kind": "JobResource", "name": "digits", "uid": "res-1"}
    about = {
        "name": f"digits-worker-{index}",
        "namespace": "ml",
        "uid": f"pod-{index}",
        "labels": names.pod_labels("digits", "worker", index, 0) if labels is None else labels,
        "ownerReferences": [{**by, "controller": True, **(owner or {})}],
    }
    containers = {"containers": [{"name": "main", "image": "trainer"}]}
    made = {"metadata": about | (metadata or {}), "spec": containers | (spec or {}), "status": status or {}}
    return raw(made)


class Nobody:
    """Records the changes of a cache."""

    def event(self, *event: Any) -> None:
        pass
