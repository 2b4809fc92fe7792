"""Other writers of sizes: a HorizontalPodAutoscaler, and a GitOps tool that applies manifests from git."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from math import ceil
from random import Random
from typing import Any, Final

from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.webhook.registration import holds
from lab.virtual.admission import scale_of
from lab.virtual.server import Verbs

EVERY: Final = 15.0
"""Seconds between two looks of an autoscaler: --horizontal-pod-autoscaler-sync-period."""
TOLERANCE: Final = 0.1
"""Of the load of a pod, which is as wanted so far: --horizontal-pod-autoscaler-tolerance."""
ARGO: Final = "argocd-controller"
TRACKING: Final = "argocd.argoproj.io/tracking-id"


class Looks(ABC):
    """A program that looks at the cluster again and again; an error ends one look."""

    def __init__(self, client: Verbs, clock: Clock, every: float) -> None:
        self.client, self.clock, self.every = client, clock, every
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """End at once, wherever it is."""
        if self._task:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            with suppress(KubeError):
                await self.look()
            await self.clock.sleep(self.every)

    @abstractmethod
    async def look(self) -> None:
        """Compare what is there with what should be, and write the difference."""


class HPA(Looks):
    """A HorizontalPodAutoscaler of one object, whose load is drawn: it changes some times, and then stays."""

    def __init__(
        self,
        client: Verbs,
        clock: Clock,
        chance: Random,
        kind: Kind[Any],
        key: Key,
        least: int,
        most: int,
        *,
        changes: int = 3,
    ) -> None:
        super().__init__(client, clock, EVERY)
        self.kind, self.key, self.least, self.most = kind, key, least, most
        self._loads = [chance.uniform(0.5 * least, 1.2 * most) for _ in range(changes)]

    async def look(self) -> None:
        """Scale by the load, in pods that it would keep busy."""
        if len(self._loads) > 1:
            self._loads.pop(0)
        found = await self.client.find(self.kind.untyped(), self.key.name, self.key.namespace)
        now = int(scale_of(self.kind, found)["spec"].get("replicas") or 0) if found else 0
        wanted = self.wanted(now)
        if now and wanted != now:  # 0 switches it off
            patch = {"spec": {"replicas": wanted}}
            await self.client.merge_patch(
                self.kind, self.key.name, patch, self.key.namespace, subresource="scale"
            )

    def wanted(self, now: int) -> int:
        """Return how many pods there should be, where there are `now`."""
        load = self._loads[0]
        fits = now and abs(load / now - 1) <= TOLERANCE
        return min(max(now if fits else ceil(load), self.least), self.most)


class GitOps(Looks):
    """Argo CD, which heals by itself and prunes: what differs from git is applied, what left git is deleted.

    All is applied once in `again` seconds, too, whether or not it differs.
    """

    def __init__(self, client: Verbs, clock: Clock, *, every: float = 5.0, again: float = 60.0) -> None:
        super().__init__(client, clock, every)
        self.git = dict[tuple[Kind[Any], Key], Manifest]()
        self._kinds = dict[Kind[Any], None]()
        self._again, self._applied = again, 0.0

    def commit(self, kind: Kind[Any], manifest: Manifest) -> None:
        """Put a manifest into git, or another one in its place."""
        about = manifest["metadata"]
        key = Key(about.get("namespace", ""), about["name"])
        annotations = {**about.get("annotations", {}), TRACKING: _mark(kind, key)}
        whole = {"apiVersion": kind.api_version, "kind": kind.name, **manifest}
        self._kinds[kind] = None
        self.git[kind, key] = {**whole, "metadata": {**about, "annotations": annotations}}

    def remove(self, kind: Kind[Any], key: Key) -> None:
        """Take a manifest out of git."""
        self.git.pop((kind, key), None)

    async def look(self) -> None:
        """Apply and prune, object by object."""
        is_due = self.clock.monotonic() - self._applied >= self._again
        if is_due:
            self._applied = self.clock.monotonic()
        for (kind, key), manifest in tuple(self.git.items()):
            with suppress(KubeError):
                found = await self.client.find(kind.untyped(), key.name, key.namespace)
                if is_due or not holds(found, manifest):
                    await self.client.apply(kind.untyped(), manifest, manager=ARGO, force=True)
        for kind in self._kinds:
            await self._prune(kind)

    async def _prune(self, kind: Kind[Any]) -> None:
        """Delete what has the mark of an object that left git; others may have copied the mark of another."""
        for found in await self.client.list(kind.untyped()):
            about = found["metadata"]
            key = Key(about.get("namespace", ""), about["name"])
            mark = (about.get("annotations") or {}).get(TRACKING)
            if mark == _mark(kind, key) and (kind, key) not in self.git:
                await self.client.delete(kind, key.name, key.namespace, propagation="Foreground")


def _mark(kind: Kind[Any], key: Key) -> str:
    return f"app:{kind.group}/{kind.name}:{key.namespace}/{key.name}"
