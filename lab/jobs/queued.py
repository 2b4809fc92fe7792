"""Jobs in queues of the real Kueue, on a real control plane with pretended machines.

Jobs and Workloads of others come, grow, shrink and go in two ClusterQueues of one cohort, while operator,
Kueue and API server are killed, machines are lost and queues stop. Every change of a pod or a Workload is
looked at in the order of the storage. After each story everything is deleted: then no Workload, and no pod,
is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab import programs
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.clusters.plane.queues import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD
from lab.processes import Process
from lab.story import Draws, Job, Length, Scene, Story, Weights
from lab.truths.quota import LABEL_JOB, QUEUES, is_true, told

TEAM: Final = "default"
MACHINES: Final = ("n1", "n2")
STEPS: Final = 6
PATIENCE: Final = 120.0
RAW: Final[tuple[Kind[Any], ...]] = (POD.untyped(), WORKLOAD)


@dataclass
class Watchman:
    """Pods and Workloads as they were stored, one change after another; `look` is called at each."""

    objects: dict[str, dict[str, Manifest]] = field(default_factory=lambda: {k.resource: {} for k in RAW})
    look: Callable[[], object] = bool
    looked: int = 0
    _waiting: list[tuple[int, str, str, Manifest | None]] = field(default_factory=list)

    def heard(self, cache: Cache[Any], change: Change) -> None:
        kind, item = cache.kind, change.new or change.old
        assert item is not None
        found = None if change.new is None else msgspec.json.decode(item.raw, type=dict)
        version = item.meta.version if change.new else cache.version  # of the deletion
        self._waiting.append((version, kind.resource, item.key.name, found))

    def go_through(self, until: int) -> None:
        """Go through all changes up to a version that all watches have passed."""
        due = sorted((each for each in self._waiting if each[0] <= until), key=lambda each: each[0])
        self._waiting = [each for each in self._waiting if each[0] > until]
        for _, resource, name, found in due:
            if found is None:
                self.objects[resource].pop(name, None)
            else:
                self.objects[resource][name] = found
            self.looked += 1
            self.look()

    async def run(self, client: Client) -> None:
        """Follow pods and Workloads: a change counts when all watches have told of later ones."""
        caches = [Cache[Any](kind, TEAM) for kind in RAW]
        async with asyncio.TaskGroup() as tasks:
            for cache in caches:
                cache.subscribe(lambda change, cache=cache: self.heard(cache, change))  # type: ignore[misc]
                tasks.create_task(Informer(client, cache).run())
            while True:
                newest = max(cache.version for cache in caches)
                await asyncio.sleep(1)  # or after a quiet second
                self.go_through(newest)


@dataclass
class Yard:
    """All programs."""

    plane: ControlPlane
    kueue: Kueue
    client: Client
    operator: Process
    watch: Watchman = field(default_factory=Watchman)


@dataclass
class Queued(Scene):
    """One interleaving; `left` has a sentence for each object that is not gone at its end."""

    yard: Yard
    chance: Random
    left: list[str] = field(default_factory=list)

    @property
    def client(self) -> Client:
        """The client of all who act."""
        return self.yard.client

    async def draws(self, troubles: Weights) -> Draws:
        """Yield some steps, the first of all before others; those of weight 2 are twice as frequent."""
        rows = [*(row for row, weight in troubles.items() if weight > 1), *troubles]
        for index in range(STEPS):
            yield self.chance.choice(rows) if index else rows[0]
            await asyncio.sleep(self.chance.choice((0.05, 0.3, 1, 3)))

    async def queues_go_on(self) -> None:
        """Let all queues admit again."""
        for name in "ab":
            await self.client.merge_patch(LOCAL_QUEUE, name, {"spec": {"stopPolicy": "None"}}, TEAM)

    async def finish(self) -> None:
        """Delete everything, and note what is left of it."""
        await persistently(self.queues_go_on)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(KubeError):
                if not (left := await self._delete()):
                    break
            await asyncio.sleep(0.3)
        else:
            self.left = left
        self.figures["changes looked at"] = self.yard.watch.looked

    async def _delete(self) -> list[str]:
        for each in await self.client.list(ELASTICJOB.untyped(), TEAM):
            await self.client.delete(ELASTICJOB, each["metadata"]["name"], TEAM)
        workloads = await self.client.list(WORKLOAD, TEAM)
        for each in workloads:
            if LABEL_JOB not in each["metadata"].get("labels", {}):
                await self.client.delete(WORKLOAD, each["metadata"]["name"], TEAM)
        left = [f"Workload {each['metadata']['name']} is left: {told(each)}" for each in workloads]
        return [*left, *(f"pod {pod.metadata.name} is left" for pod in await self.client.list(POD, TEAM))]


async def persistently(act: Callable[[], Awaitable[object]]) -> None:
    """Repeat an act until the server has done it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            await act()
            return
        except KubeError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(0.3)


async def others_leave(client: Client) -> None:
    """Others return quota that is taken from them at once; nothing of theirs runs here."""
    while True:
        with suppress(KubeError):
            for each in await client.list(WORKLOAD, TEAM):
                ours = LABEL_JOB in each["metadata"].get("labels", {})
                if not ours and is_true(each, "Evicted") and is_true(each, "QuotaReserved"):
                    await client.delete(WORKLOAD, each["metadata"]["name"], TEAM)
        await asyncio.sleep(0.5)


def job(name: str, queue: str, replicas: int, least: int) -> Manifest:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    worker = {"replicas": replicas, "minReplicas": least, "maxReplicas": 8, "template": {"spec": pod}}
    spec = {"distributionStrategy": "Local", "optimizeMode": "manual", "replicaSpecs": {"worker": worker}}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    return {"metadata": {"name": name, "namespace": TEAM, "labels": labels}, "spec": spec}


@asynccontextmanager
async def yard(folder: Path, job: Job) -> AsyncIterator[Yard]:
    """Run everything, with machines and queues."""
    with (
        ControlPlane(folder / "plane", scheduler=True, kwok=True) as plane,
        Kueue(plane, folder / "kueue") as kueue,
    ):
        async with Client(plane.config()) as client, asyncio.TaskGroup() as tasks:
            for name in MACHINES:
                await client.create(NODE.untyped(), pretended.machine(name))
            await client.create(RESOURCE_FLAVOR, queues.flavor())
            for each in QUEUES:
                made = queues.cluster_queue(each.name, {"cpu": str(each.nominal)}, cohort=each.cohort)
                await client.create(CLUSTER_QUEUE, made)
                await client.create(LOCAL_QUEUE, queues.local_queue(each.name, TEAM, each.name))
            here = Yard(plane, kueue, client, programs.operator(plane.kubeconfig, folder))
            beside = [tasks.create_task(each) for each in (here.watch.run(client), others_leave(client))]
            try:
                await here.operator.up()
                yield here
            finally:
                here.operator.stop(0.0)
                for task in beside:
                    task.cancel()


@asynccontextmanager
async def interleaved(here: Yard, story: Story) -> AsyncIterator[Queued]:
    """Begin an interleaving; the first one is drawn by the seed alone."""
    chance = story.chance()
    scene = Queued(here, chance, story=story, evidence=(here.operator.log,))
    here.watch.look = lambda: story.look(scene)
    yield scene


OFTEN: Final = ("job-arrives", "job-resizes", "other-comes", "queues-go-on")
SELDOM: Final = (
    *("restart-operator", "restart-kueue", "restart-server", "job-goes", "other-goes", "queue-stops"),
    *("machine-is-lost", "pod-is-lost"),
)
JOBS: Final = (
    Job(
        "queued",
        "jobs in queues of the real Kueue, on pretended machines: no pod without quota at any instant",
        ("kueue",),
        interleaved,
        Queued,
        dict.fromkeys(OFTEN, 2) | dict.fromkeys(SELDOM, 1),
        ("quota",),
        Length(stories=50),
    ),
)
