"""Jobs on a real node: their pods, what users do to them, and what is seen of them meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from elasticjob import __version__
from elasticjob.cli.demo.run import following
from elasticjob.cli.story.example import ENDLESS, Example
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.stage import Real, newest
from elasticjob.cli.story.steps import gaps, lost
from elasticjob.cli.story.watched import JobView
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.installed.installation import Installation
from lab.clusters.installed.kubectl import Kubectl
from lab.clusters.installed.timeline import Row, longest
from lab.waiting import PATIENCE

KILL: Final = """
import os, signal
from elasticjob.cli.story.processes import running, workers_of
worker = workers_of(running(lambda process: True))[0]
os.kill(worker.pid, signal.SIGKILL)
print(worker.pid)
"""
"""Run in a container, where nothing but the container's own processes can be seen."""
TRAINER: Final = f"elasticjob/trainer:{__version__}"
VOLUME: Final = "/checkpoints"
RESTRICTED: Final[Manifest] = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
UNPRIVILEGED: Final[Manifest] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def restricted(main: Manifest, *volumes: Manifest) -> Manifest:
    """Return the spec of pods of one container that a namespace admits which enforces the standard."""
    containers = [{"name": "main", "securityContext": UNPRIVILEGED, **main}]
    return {"containers": containers, "securityContext": RESTRICTED, "volumes": [*volumes]}


def role(
    command: list[str], *, image: str = TRAINER, resources: Manifest | None = None, **more: Any
) -> Manifest:
    """Return a role whose pods see the ConfigMap `code` in /code, and the namespace's volume in VOLUME."""
    main = {
        "image": image,
        "command": command,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": resources or {},
        "volumeMounts": [
            {"name": "code", "mountPath": "/code"},
            {"name": "checkpoints", "mountPath": VOLUME},
        ],
    }
    volumes: tuple[Manifest, ...] = (
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "digits-checkpoints"}},
    )
    return {"template": {"spec": restricted(main, *volumes)}, **more}


def volume_of(folder: Path, namespace: str, claim: str, mode: str = "ReadWriteMany") -> Manifest:
    """Return a volume of the node's folder, which a claim is bound to; it is called like the folder."""
    spec = {
        "capacity": {"storage": "10Gi"},
        "accessModes": [mode],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": namespace, "name": claim},
    }
    about = {"name": folder.name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": spec}


def furniture(namespace: str, *scripts: Path) -> tuple[Manifest, ...]:
    """Return what such a role needs: the ConfigMap with scripts, and the claim of the namespace's volume."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": namespace,
    }
    about = {"name": "digits-checkpoints", "namespace": namespace}
    code = {each.name: each.read_text() for each in scripts}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**about, "name": "code"}, "data": code},
    )


@dataclass(frozen=True)
class OnNode(Real):
    """A job in a namespace of the node: kubectl creates it and reaches into its containers."""

    kubectl: Kubectl

    async def apply(self) -> str:
        """Create the job and the objects it needs; it has no end until it is resumed."""
        objects = [deepcopy(one) for one in (*self.example.others, self.example.training(ENDLESS).job)]
        for one in objects:
            one["metadata"]["namespace"] = self.key.namespace
        await self.kubectl.apply(*objects)
        return "kubectl apply -f examples/digits/job.yaml"

    async def kill_worker(self) -> str:
        """SIGKILL the worker process in the container of the newest pod."""
        pod = newest(self.look().workers).name
        pid = await self.kubectl("-n", self.key.namespace, "exec", pod, "--", "python3", "-c", KILL)
        return f"kubectl exec {pod} -- kill -9 {pid.strip()}, its worker"


@dataclass(frozen=True)
class Followed:
    """The demo's job on the node, and what is seen of it; `event` is what its rows of the table are about."""

    node: Installation
    watched: JobView
    stage: OnNode
    event: str

    async def sees(self, true: Callable[[Seen], bool]) -> None:
        """Wait until something is true of the job."""
        async with asyncio.timeout(2 * PATIENCE):
            while not true(self.watched.seen):
                await self.watched.change()

    async def trains(self, world: int) -> None:
        """Wait until so many workers train, and have made some steps."""
        await self.sees(lambda now: now.world == world)
        after = self.watched.seen.step
        await self.sees(lambda now: now.step > after + 20)

    @asynccontextmanager
    async def noted(self, did: str) -> AsyncIterator[None]:
        """Note how long the block took, and the longest time without a step."""
        began, step = time.time(), self.watched.seen.step
        yield
        during = (each for each in self.watched.steps if each.at >= began)
        words = f"{did}, from step {step} to {self.watched.seen.step}"
        self.node.rows.append(Row(0.0, self.event, words, time.time() - began, longest=longest(during)))

    def assert_nothing_lost(self) -> None:
        """Each step was made once."""
        assert gaps(self.watched.steps) == ()
        assert lost(self.watched.steps) == 0


@asynccontextmanager
async def followed(
    node: Installation, admin: Client, example: Example, volume: Path, event: str
) -> AsyncIterator[Followed]:
    """Follow a job that writes its steps to the volume of its namespace."""
    recorded = example.recording(Path("/checkpoints/steps.jsonl"))
    async with following(admin, example.key, volume / "steps.jsonl") as watched:
        yield Followed(node, watched, OnNode(admin, recorded, lambda: watched.seen, node.kubectl), event)


def in_namespace(example: Example, namespace: str) -> Example:
    """Return the job in a namespace."""
    job = deepcopy(example.job)
    job["metadata"]["namespace"] = namespace
    return replace(example, job=job)
