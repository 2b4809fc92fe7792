"""`make chaos-queue`: jobs in queues of the real Kueue, on a real control plane with pretended machines.

Jobs and Workloads of others come, grow, shrink and go in two ClusterQueues of one cohort, while operator,
Kueue and API server are killed, machines are lost and queues stop. Every change of a pod or a Workload is
looked at in the order of the storage: see `quota.py` for what must hold at each instant. After each
interleaving everything is deleted: then no Workload, and no pod, is left.

    python -m lab.chaos.queue [--interleavings 50] [--seed 0]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
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
from elasticjob.kube.errors import KubeError, NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.chaos.quota import LABEL_JOB, Queue, breaches, is_true, told
from lab.clusters.plane import queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.clusters.plane.queues import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD
from lab.paths import ROOT
from lab.programs.programs import end_on_sigterm, say

TEAM: Final = "default"
NOMINAL: Final = 3
QUEUES: Final = (Queue("a", NOMINAL, "c"), Queue("b", NOMINAL, "c"))
MACHINES: Final = ("n1", "n2")
STEPS: Final = 6
PATIENCE: Final = 120.0
RAW: Final[tuple[Kind[Any], ...]] = (POD.untyped(), WORKLOAD)


@dataclass
class Watchman:
    """Pods and Workloads as they were stored, one change after another, and what was wrong at any of them."""

    objects: dict[str, dict[str, Manifest]] = field(default_factory=lambda: {k.resource: {} for k in RAW})
    excused: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    looked: int = 0
    _waiting: list[tuple[int, str, str, Manifest | None]] = field(default_factory=list)

    def heard(self, cache: Cache[Any], change: Change) -> None:
        kind, item = cache.kind, change.new or change.old
        assert item is not None
        found = None if change.new is None else msgspec.json.decode(item.raw, type=dict)
        version = item.meta.version if change.new else cache.version  # of the deletion
        self._waiting.append((version, kind.resource, item.key.name, found))

    def look(self, until: int) -> None:
        """Go through all changes up to a version that all watches have passed."""
        due = sorted((each for each in self._waiting if each[0] <= until), key=lambda each: each[0])
        self._waiting = [each for each in self._waiting if each[0] > until]
        for _, resource, name, found in due:
            if found is None:
                self.objects[resource].pop(name, None)
            else:
                self.objects[resource][name] = found
            self.looked += 1
            pods, workloads = (self.objects[kind.resource].values() for kind in RAW)
            ours = [pod for pod in pods if LABEL_JOB in pod["metadata"].get("labels", {})]
            for sentence in breaches(ours, workloads, QUEUES, self.excused):
                if sentence not in self.wrong:
                    self.wrong.append(sentence)


@dataclass
class Stage:
    """All programs, and what may be done to them."""

    plane: ControlPlane
    kueue: Kueue
    client: Client
    chance: Random
    log: Path
    operator: subprocess.Popen[bytes] | None = None
    done: Counter[str] = field(default_factory=Counter)

    def start_operator(self) -> None:
        flags = [
            "--kubeconfig",
            str(self.plane.kubeconfig),
            "--install",
            "--probes",
            "",
            "--webhook-port",
            "0",
        ]
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "elasticjob.cli", "operator", *flags]
            self.operator = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill_operator(self) -> None:
        if self.operator:
            self.operator.kill()
            self.operator.wait()
            self.operator = None

    async def restart_operator(self) -> None:
        self.kill_operator()
        await asyncio.sleep(self.chance.uniform(0, 2))
        self.start_operator()

    async def restart_kueue(self) -> None:
        self.kueue.kill()
        await asyncio.sleep(self.chance.uniform(0, 2))
        await asyncio.to_thread(self.kueue.start)

    async def restart_server(self) -> None:
        self.plane.kill("kube-apiserver")
        await asyncio.to_thread(self.plane.start, "kube-apiserver")

    async def job_arrives(self) -> None:
        name, least = f"j{self.chance.randint(0, 2)}", self.chance.randint(1, 2)
        made = job(name, self.chance.choice("ab"), least + self.chance.randint(0, 4), least)
        await self.client.create(ELASTICJOB.untyped(), made)

    async def job_resizes(self) -> None:
        worker = {"replicas": self.chance.randint(1, 6)}
        patch = {"spec": {"replicaSpecs": {"worker": worker}}}
        name = f"j{self.chance.randint(0, 2)}"
        await self.client.merge_patch(ELASTICJOB.untyped(), name, patch, TEAM)

    async def job_goes(self) -> None:
        await self.client.delete(ELASTICJOB, f"j{self.chance.randint(0, 2)}", TEAM)

    async def other_comes(self) -> None:
        name, queue = f"f{self.chance.randint(0, 1)}", self.chance.choice("ab")
        priority = self.chance.choice((0, 5))
        made = queues.workload(name, TEAM, queue, self.chance.randint(1, 4), {"cpu": "1"}, priority=priority)
        await self.client.create(WORKLOAD, made)

    async def other_goes(self) -> None:
        await self.client.delete(WORKLOAD, f"f{self.chance.randint(0, 1)}", TEAM)

    async def queue_stops(self, policy: str = "HoldAndDrain") -> None:
        patch = {"spec": {"stopPolicy": policy}}
        await self.client.merge_patch(LOCAL_QUEUE, self.chance.choice("ab"), patch, TEAM)

    async def queues_go_on(self) -> None:
        for name in "ab":
            await self.client.merge_patch(LOCAL_QUEUE, name, {"spec": {"stopPolicy": "None"}}, TEAM)

    async def machine_is_lost(self) -> None:
        name = self.chance.choice(MACHINES)
        await self.client.delete(NODE, name)
        await self.client.create(NODE.untyped(), machine(name))

    async def pod_is_lost(self) -> None:
        pods = await self.client.list(POD, TEAM)
        if pods:
            await self.client.delete(POD, self.chance.choice(pods).metadata.name, TEAM, grace=0)

    @property
    def steps(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        often = (self.job_arrives, self.job_resizes, self.other_comes, self.queues_go_on)
        kills = (self.restart_operator, self.restart_kueue, self.restart_server)
        rest = (self.job_goes, self.other_goes, self.queue_stops, self.machine_is_lost, self.pod_is_lost)
        return (*often, *often, *kills, *rest)

    async def step(self) -> None:
        """Do something; what the server refuses, or cannot do now, is not done."""
        act = self.chance.choice(self.steps)
        with suppress(KubeError):
            await act()
            self.done[act.__name__] += 1


async def others_leave(client: Client) -> None:
    """Others return quota that is taken from them at once; nothing of theirs runs here."""
    while True:
        with suppress(KubeError):
            for each in await client.list(WORKLOAD, TEAM):
                ours = LABEL_JOB in each["metadata"].get("labels", {})
                if not ours and is_true(each, "Evicted") and is_true(each, "QuotaReserved"):
                    await client.delete(WORKLOAD, each["metadata"]["name"], TEAM)
        await asyncio.sleep(0.5)


async def interleave(on: Stage, watch: Watchman, caches: list[Cache[Any]], number: int) -> list[str]:
    """One interleaving; returns what was wrong."""
    for index in range(STEPS):
        await (on.step() if index else on.job_arrives())
        await asyncio.sleep(on.chance.choice((0.05, 0.3, 1, 3)))
    await persistently(on.queues_go_on)
    return [*watch.wrong, *await end(on, watch)]


async def end(on: Stage, watch: Watchman) -> list[str]:
    """Delete everything; return what is left of it."""
    until = time.monotonic() + PATIENCE
    left: list[str] = []
    while time.monotonic() < until:
        with suppress(KubeError):
            for each in await on.client.list(ELASTICJOB.untyped(), TEAM):
                await on.client.delete(ELASTICJOB, each["metadata"]["name"], TEAM)
            found = await on.client.list(WORKLOAD, TEAM)
            for each in found:
                if LABEL_JOB not in each["metadata"].get("labels", {}):
                    await on.client.delete(WORKLOAD, each["metadata"]["name"], TEAM)
            pods = [pod.metadata.name for pod in await on.client.list(POD, TEAM)]
            left = [f"Workload {e['metadata']['name']} is left: {told(e)}" for e in found]
            left += [f"pod {name} is left" for name in pods]
            if not left:
                return []
        await asyncio.sleep(0.3)
    return left


async def persistently(act: Callable[[], Awaitable[None]]) -> None:
    """Repeat an act until the server has done it."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return await act()
        except KubeError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(0.3)


async def set_up(client: Client) -> None:
    """Machines and queues."""
    for name in MACHINES:
        await client.create(NODE.untyped(), machine(name))
    await client.create(RESOURCE_FLAVOR, queues.flavor())
    for each in QUEUES:
        made = queues.cluster_queue(each.name, {"cpu": str(each.nominal)}, cohort=each.cohort)
        await client.create(CLUSTER_QUEUE, made)
        await client.create(LOCAL_QUEUE, queues.local_queue(each.name, TEAM, each.name))


def machine(name: str) -> Manifest:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}


def job(name: str, queue: str, replicas: int, least: int) -> Manifest:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    worker = {"replicas": replicas, "minReplicas": least, "maxReplicas": 8, "template": {"spec": pod}}
    spec = {"distributionStrategy": "Local", "optimizeMode": "manual", "replicaSpecs": {"worker": worker}}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    return {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": name, "namespace": TEAM, "labels": labels},
        "spec": spec,
    }


@contextmanager
def stage(folder: Path, chance: Random) -> Iterator[Stage]:
    """Run everything while the block lasts; `client` is opened by the caller."""
    with (
        ControlPlane(folder / "plane", scheduler=True, kwok=True) as plane,
        Kueue(plane, folder / "kueue") as kueue,
    ):
        on = Stage(plane, kueue, Client(plane.config()), chance, folder / "operator.log")
        try:
            yield on
        finally:
            on.kill_operator()


async def run(options: Namespace) -> int:
    """Play all interleavings; return how many broke a rule."""
    bad, chance = 0, Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="chaos-queue-") as folder, stage(Path(folder), chance) as on:
        async with on.client, AsyncExitStack() as tasks:
            await set_up(on.client)
            on.start_operator()
            watch, caches = Watchman(), [Cache[Any](kind, TEAM) for kind in RAW]
            group = await tasks.enter_async_context(asyncio.TaskGroup())
            running = [group.create_task(_follow(on.client, watch, cache)) for cache in caches]
            running += [group.create_task(others_leave(on.client)), group.create_task(_look(watch, caches))]
            await _installed(on.client)
            for number in range(options.interleavings):
                wrong = await interleave(on, watch, caches, number)
                bad += bool(wrong)
                say(f"  {number + 1}: {'; '.join(wrong) or 'fine'} ({watch.looked:,} changes looked at)")
                watch.wrong.clear()
            for task in running:
                task.cancel()
    did = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(on.done.items()))
    say(
        f"seed {options.seed}: {options.interleavings} interleavings, {bad} broke a rule; "
        f"{watch.looked:,} changes looked at; {did}"
    )
    return bad


async def _follow(client: Client, watch: Watchman, cache: Cache[Any]) -> None:
    cache.subscribe(lambda change: watch.heard(cache, change))
    await Informer(client, cache).run()


async def _look(watch: Watchman, caches: list[Cache[Any]]) -> None:
    """A change counts when all watches have told of later ones, or after a quiet second."""
    while True:
        newest = max(cache.version for cache in caches)
        await asyncio.sleep(1)
        watch.look(newest)


async def _installed(client: Client) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(NotFound):
            await client.list(ELASTICJOB.untyped(), TEAM)
            return
        await asyncio.sleep(0.2)


def main() -> int:
    """Run as a program."""
    parser = ArgumentParser(prog="python -m lab.chaos.queue", description=__doc__)
    parser.add_argument("--interleavings", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    end_on_sigterm()
    return min(1, asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    sys.exit(main())
