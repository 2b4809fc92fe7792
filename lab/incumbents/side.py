"""One side of a story: a namespace, and the object of its kind, an incumbent's or ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest

JOB: Final = Kind("batch", "v1", "Job", "jobs", dict)
QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas", dict)


@dataclass
class Side:
    """One side of a story: its namespace, with objects of one kind."""

    client: Client
    namespace: str
    ours: bool

    @property
    def kind(self) -> Kind[Any]:
        return ELASTICJOB.untyped() if self.ours else JOB

    def where(self, kind: Kind[Any]) -> str | None:
        return self.namespace if kind.namespaced else None

    async def create(self, kind: Kind[Any], manifest: Manifest) -> None:
        await self.client.create(kind.untyped(), manifest, self.where(kind))

    async def patch(self, kind: Kind[Any], name: str, change: Manifest, subresource: str = "") -> None:
        await self.client.merge_patch(kind.untyped(), name, change, self.where(kind), subresource=subresource)

    async def delete(self, kind: Kind[Any], name: str, grace: int | None = None) -> None:
        await self.client.delete(kind, name, self.where(kind), grace=grace)
