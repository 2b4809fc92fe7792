"""One side of a story: the objects that both sides have under names of their own, and the job of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD
from lab.clusters.plane import queues
from lab.clusters.plane.kueue import Kueue
from lab.incumbents import side


@dataclass
class Side(side.Side):
    """Where a story is played with jobs of one kind."""

    kueue: Kueue

    def named(self, value: Any) -> Any:
        """Return a manifest, or a part of one, with this side's prefix."""
        if isinstance(value, str):
            return value.replace("~", self.prefix)
        if isinstance(value, Mapping):
            return {self.named(key): self.named(each) for key, each in value.items()}
        return [self.named(each) for each in value] if isinstance(value, list) else value

    @property
    def prefix(self) -> str:
        return f"{self.namespace}-"

    def short(self, name: str) -> str:
        """Return a name without this side's prefix."""
        return name.removeprefix(self.prefix)

    async def create(self, kind: Kind[Any], manifest: Manifest) -> None:
        await super().create(kind, self.named(manifest))

    async def patch(self, kind: Kind[Any], name: str, change: Manifest, subresource: str = "") -> None:
        await super().patch(kind, self.named(name), self.named(change), subresource)

    async def delete(self, kind: Kind[Any], name: str, grace: int | None = None) -> None:
        await super().delete(kind, self.named(name), grace)

    async def workload(self, name: str) -> Manifest:
        """Return the newest Workload of a job that is no slice of it."""
        every = await self.client.list(queues.WORKLOAD, self.namespace)
        bases = (each for each in every if owner(each) == name and not is_slice(each))
        return max(bases, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    async def pods(self, name: str) -> list[Manifest]:
        every = await self.client.list(POD.untyped(), self.namespace)
        return [each for each in every if job_of(each) == name]


def owner(workload: Manifest) -> str:
    return next((each["name"] for each in workload["metadata"].get("ownerReferences", ())), "")


def is_slice(workload: Manifest) -> bool:
    return "elasticjob.dlrover/slice" in workload["metadata"].get("labels", {})


def job_of(pod: Manifest) -> str:
    labels = pod["metadata"].get("labels", {})
    return str(labels.get("elasticjob.dlrover/name") or labels.get("batch.kubernetes.io/job-name", ""))
