"""The two systems beside each other: how each is started, and what its users write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.clients.plane import NAMESPACE
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab import programs
from lab.clusters.plane import trainer as peers
from lab.clusters.plane.controlplane import ControlPlane

QUEUE: Final = "kueue.x-k8s.io/queue-name"
GPU: Final = "nvidia.com/gpu"
STAYS, BRIEF = "stays", "brief"
"""Images, as kwok understands them: a pod that runs on, one that has succeeded after a second."""


@dataclass(frozen=True)
class Asked:
    """A job as a user thinks of it; `least` is what it can train with, and `brief` whether it ends."""

    name: str
    workers: int
    least: int
    queue: str
    brief: bool = False


@dataclass(frozen=True)
class System:
    """One of the two: its kind of job, which pods train, what Kueue is told of it."""

    name: str
    kind: Kind[Manifest]
    trains: str
    """Part of the name of each pod that trains."""
    frameworks: tuple[str, ...]
    manifest: Callable[[Asked], Manifest]
    sized: Callable[[int], Manifest]
    """The patch of a job's size."""
    beside: Callable[[ControlPlane, Path], AbstractAsyncContextManager[None]]
    """Its controllers, for as long as the block lasts."""


def _labelled(kind: Kind[Manifest], asked: Asked, spec: Manifest) -> Manifest:
    metadata = {"name": asked.name, "namespace": NAMESPACE, "labels": {QUEUE: asked.queue}}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}


# Ours

OURS_KIND: Final = ELASTICJOB.untyped()


def _elastic_job(asked: Asked) -> Manifest:
    """With a master; a brief one without: kwok cannot play a master that says that training is over."""
    container = {
        "name": "main",
        "image": BRIEF if asked.brief else STAYS,
        "resources": {"requests": {"cpu": "100m", GPU: "1"}, "limits": {GPU: "1"}},
    }
    sizes = {"replicas": asked.workers, "minReplicas": asked.least, "maxReplicas": asked.workers}
    spec = {
        "distributionStrategy": "Local" if asked.brief else "AllreduceStrategy",
        "replicaSpecs": {WORKER: {**sizes, "template": {"spec": {"containers": [container]}}}},
    }
    return _labelled(OURS_KIND, asked, spec)


def _elastic_size(workers: int) -> Manifest:
    sizes = {"replicas": workers, "maxReplicas": workers}
    return {"spec": {"replicaSpecs": {WORKER: sizes}}}


@asynccontextmanager
async def _operator(plane: ControlPlane, folder: Path) -> AsyncIterator[None]:
    async with programs.operator(plane.kubeconfig, folder):
        yield


# Kubeflow Trainer's

RUNTIME: Final = "torch-distributed"


def _train_job(asked: Asked) -> Manifest:
    """It has no least size: all of its pods, or none."""
    resources = {"requests": {"cpu": "100m", GPU: "1"}, "limits": {GPU: "1"}}
    trainer = {
        "numNodes": asked.workers,
        "numProcPerNode": 1,
        "image": BRIEF if asked.brief else STAYS,
        "resourcesPerNode": resources,
    }
    return _labelled(peers.TRAIN_JOB, asked, {"runtimeRef": {"name": RUNTIME}, "trainer": trainer})


@asynccontextmanager
async def _trainer_and_jobset(plane: ControlPlane, folder: Path) -> AsyncIterator[None]:
    """JobSet first: Kubeflow Trainer looks for its kind as it starts."""
    guests = (peers.jobset(plane, folder / "jobset"), peers.trainer(plane, folder / "trainer"))
    try:
        for guest in guests:
            await asyncio.to_thread(guest.install)
            await asyncio.to_thread(guest.start)
            await asyncio.to_thread(guest.register)
        async with Client(plane.config()) as client:
            for runtime in peers.runtimes():
                if runtime["metadata"]["name"] == RUNTIME:
                    await client.create(peers.RUNTIME, runtime)
        yield
    finally:
        for guest in reversed(guests):
            await asyncio.to_thread(guest.stop)


OURS: Final = System("ours", OURS_KIND, "-worker-", (), _elastic_job, _elastic_size, _operator)
TRAINER: Final = System(
    "Kubeflow Trainer",
    peers.TRAIN_JOB,
    "-node-",
    peers.FRAMEWORKS,
    _train_job,
    lambda nodes: {"spec": {"trainer": {"numNodes": nodes}}},
    _trainer_and_jobset,
)
SYSTEMS: Final = {"ours": OURS, "trainer": TRAINER}
