"""Simulated users, whose jobs come and go, and a simulated kubelet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.parts.names import MASTER
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import Conflict, Invalid, KubeError, NotFound
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE, POD, Pod
from lab.chaos.soak.world import KINDS, OVER, OWNED, World, is_alive, is_over, role_of

LARGEST = 3
STARTS_WITHIN = 0.3
"""Maximum start time of a simulated container in seconds."""
AT_ONCE = 8
SUCCEEDED = '{"verdict": "Succeeded", "reason": "TrainingSucceeded", "message": "played"}'


class Eyes:
    """The state on the server: caches of all kinds, without the fault proxy."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.namespace = namespace
        self.caches = {kind.name: Cache(kind, namespace) for kind in KINDS}
        self._informers = [Informer(client, cache) for cache in self.caches.values()]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Follow the server for the length of the block."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(informer.run()) for informer in self._informers]
            try:
                for cache in self.caches.values():
                    await cache.wait_synced()
                yield
            finally:
                for task in running:
                    task.cancel()

    def look(self) -> World:
        jobs = self.caches[ELASTICJOB.name].list()
        owned = {kind.name: [item.meta for item in self.caches[kind.name].items()] for kind in OWNED}
        return World({job.metadata.name: job for job in jobs}, self.pods(), owned)

    def pods(self) -> list[Pod]:
        return self.caches[POD.name].list()

    def count(self, kind: Kind[Any]) -> int:
        return len(self.caches[kind.name])


class Kubelet:
    """Reports pods as running soon after their creation; without a node they are deleted at once."""

    def __init__(self, client: Client, eyes: Eyes, chance: random.Random) -> None:
        self._client = client
        self._eyes = eyes
        self._chance = chance
        self._waiting: asyncio.Queue[Pod] = asyncio.Queue()
        eyes.caches[POD.name].subscribe(self._on_pod)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as hands:
            for _ in range(AT_ONCE):
                hands.create_task(self._start_pods())

    def _on_pod(self, change: Change) -> None:
        if change.new is None or (change.old and change.old.meta.uid == change.new.meta.uid):
            return
        pod: Pod = self._eyes.caches[POD.name].view(change.new)
        if pod.status.phase not in ("Running", "Succeeded", "Failed"):
            asyncio.get_running_loop().call_later(
                self._chance.uniform(0, STARTS_WITHIN), self._waiting.put_nowait, pod
            )

    async def _start_pods(self) -> None:
        while True:
            created = await self._waiting.get()
            pod = self._eyes.caches[POD.name].get(Key(created.metadata.namespace, created.metadata.name))
            if pod is None or pod.metadata.uid != created.metadata.uid or pod.status.phase in OVER:
                continue
            try:
                await say(self._client, pod, "Running", {"running": {"startedAt": _now()}})
            except (NotFound, Invalid):  # it is gone, or another pod has its name
                continue
            except KubeError:  # it has changed, or the server is away: the pod starts a little later
                asyncio.get_running_loop().call_later(0.2, self._waiting.put_nowait, pod)


async def say(client: Client, pod: Pod, phase: str, state: Manifest) -> None:
    """Write a pod's status as a kubelet would. Raises Conflict if it has changed: nobody's end is lost."""
    ready = phase == "Running"
    common = {"imageID": "", "ready": ready, "restartCount": 0, "state": state}
    statuses = [common | {"name": each.name, "image": each.image} for each in pod.spec.containers]
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "podIP": "10.0.0.1", "conditions": conditions, "containerStatuses": statuses}
    metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    patch = {"metadata": metadata, "status": status | {"podIPs": [{"ip": "10.0.0.1"}]}}
    await client.merge_patch(POD, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")


def ended(code: int, message: str = "") -> Manifest:
    """The state of a container that is over."""
    reason = "Completed" if code == 0 else "Error"
    terminated = {"exitCode": code, "reason": reason, "message": message, "finishedAt": _now()}
    return {"terminated": terminated}


def _now() -> str:
    return timestamp(datetime.now(UTC))


@dataclass
class Users:
    """Applies, scales, suspends and deletes jobs, and ends their pods; `act` does one of these at random."""

    client: Client
    eyes: Eyes
    chance: random.Random
    jobs: int
    made: int = 0
    did: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)

    async def fill(self) -> None:
        """Apply jobs until the target number is reached."""
        while self.eyes.count(ELASTICJOB) < self.jobs:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(AT_ONCE, self.jobs - self.eyes.count(ELASTICJOB))):
                    tasks.create_task(self.apply())

    async def act(self) -> None:
        """Perform one random action on one job."""
        names = sorted(self.eyes.look().jobs)
        if len(names) < self.jobs:
            await self._do("apply", lambda _: self.apply(), "")
            return
        what = self.chance.choices(list(DEEDS), weights=[weight for weight, _ in DEEDS.values()])[0]
        await self._do(what, lambda name: DEEDS[what][1](self, name), self.chance.choice(names))

    async def _do(self, what: str, deed: Callable[[str], Awaitable[None]], name: str) -> None:
        self.did[what] = self.did.get(what, 0) + 1
        with suppress(KubeError):  # the job is gone, or the server is unavailable
            await deed(name)

    async def apply(self) -> None:
        """Apply a new job; now and then under the name of a deleted one."""
        if self.gone and self.chance.random() < 0.3:
            name = self.gone.pop(self.chance.randrange(len(self.gone)))
        else:
            self.made += 1
            name = f"soak-{self.made}"
        await self.client.create(ELASTICJOB, job(name, self.chance.randint(1, LARGEST)), self.eyes.namespace)

    async def delete(self, name: str) -> None:
        await self.client.delete(ELASTICJOB, name, self.eyes.namespace)
        self.gone.append(name)

    async def scale(self, name: str) -> None:
        size = self.chance.randint(1, LARGEST)
        patch = {"spec": {"replicaSpecs": {WORKER: {"replicas": size}}}}
        await self.client.merge_patch(ELASTICJOB, name, patch, self.eyes.namespace)

    async def suspend(self, name: str) -> None:
        found = self.eyes.look().jobs[name]
        patch = {"spec": {"suspend": not found.spec.suspend}}
        await self.client.merge_patch(ELASTICJOB, name, patch, self.eyes.namespace)

    async def finish(self, name: str) -> None:
        """End its pods, the master first and with a verdict: a job ends only with its master."""
        pods = sorted(self._alive(name), key=lambda pod: role_of(pod) != MASTER)
        if not pods or role_of(pods[0]) != MASTER:
            return
        await say(self.client, pods[0], "Succeeded", ended(0, SUCCEEDED))
        for pod in pods[1:]:
            with suppress(NotFound, Conflict, Invalid):  # it has gone meanwhile: the others end all the same
                await say(self.client, pod, "Succeeded", ended(0))

    async def kill(self, name: str) -> None:
        """A container is killed from outside."""
        for pod in self._alive(name)[:1]:
            await say(self.client, pod, "Failed", ended(137))

    async def evict(self, name: str) -> None:
        """A pod is deleted."""
        for pod in self._alive(name)[-1:]:
            about = pod.metadata
            await self.client.delete(
                POD, about.name, about.namespace, uid=about.uid, version=about.resource_version
            )

    async def delete_all(self) -> None:
        for found in await self.client.list(ELASTICJOB, self.eyes.namespace):
            await self.client.delete(ELASTICJOB, found.metadata.name, self.eyes.namespace)

    def _alive(self, name: str) -> list[Pod]:
        world = self.eyes.look()
        if is_over(world.jobs[name]) or world.jobs[name].spec.suspend:
            return []
        return [pod for pod in world.pods_of().get(name, []) if is_alive(pod)]


Deed = Callable[[Users, str], Awaitable[None]]
DEEDS: Mapping[str, tuple[int, Deed]] = {
    "delete": (4, Users.delete),
    "scale": (4, Users.scale),
    "finish": (2, Users.finish),
    "kill": (2, Users.kill),
    "evict": (2, Users.evict),
    "suspend": (2, Users.suspend),
}
"""The actions of users, with relative frequencies. Deleted jobs are replaced."""


def job(name: str, workers: int) -> Manifest:
    """Return a typical job."""
    container = {
        "name": "main",
        "image": "elasticjob/trainer:0.1.0",
        "command": ["elasticjob", "run", "train.py"],
    }
    worker = {
        "replicas": workers,
        "minReplicas": 1,
        "maxReplicas": LARGEST,
        "restartCount": 100,
        "template": {"spec": {"containers": [container]}},
    }
    spec = {"distributionStrategy": "AllreduceStrategy", "replicaSpecs": {WORKER: worker}}
    return {"metadata": {"name": name}, "spec": spec}


async def make_namespace(client: Client, name: str) -> None:
    await client.create(NAMESPACE, {"metadata": {"name": name}})
