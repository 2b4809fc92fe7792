"""The user actions of the stories, done to a job on a real node with kubectl."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from elasticjob.cli.story.example import ENDLESS, Example
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.stage import newest
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.installed.kubectl import Kubectl

KILL: Final = """
import os, signal
from elasticjob.cli.story.processes import running, workers_of
worker = workers_of(running(lambda process: True))[0]
os.kill(worker.pid, signal.SIGKILL)
print(worker.pid)
"""
"""Run in a container, where nothing but the container's own processes can be seen."""
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


def role(image: str, command: list[str], folder: str, resources: Manifest, **more: Any) -> Manifest:
    """Return a role whose pods see the ConfigMap `code` in /code, and the volume of the namespace."""
    main = {
        "image": image,
        "command": command,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": resources,
        "volumeMounts": [
            {"name": "code", "mountPath": "/code"},
            {"name": "checkpoints", "mountPath": folder},
        ],
    }
    volumes: tuple[Manifest, ...] = (
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "digits-checkpoints"}},
    )
    return {"template": {"spec": restricted(main, *volumes)}, **more}


def shared_claim(namespace: str) -> Manifest:
    """Return the claim that binds the volume of a test's namespace."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": namespace,
    }
    about = {"name": "digits-checkpoints", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}


@dataclass(frozen=True)
class OnNode:
    """A job in a namespace of the node; `look` returns its observed state."""

    kubectl: Kubectl
    example: Example
    look: Callable[[], Seen]

    @property
    def resource(self) -> str:
        """The job as kubectl names it."""
        return f"elasticjob/{self.example.key.name}"

    async def apply(self) -> str:
        """Create the job and the objects it needs; it has no end until it is resumed."""
        namespace = self.example.key.namespace
        objects = [deepcopy(one) for one in (*self.example.others, self.example.training(ENDLESS).job)]
        for one in objects:
            one["metadata"]["namespace"] = namespace
        await self.kubectl.apply(*objects)
        return "kubectl apply -f examples/digits/job.yaml"

    async def kill_worker(self) -> str:
        """SIGKILL the worker process in the container of the newest pod."""
        pod = newest(self.look().workers).name
        pid = (
            await self.kubectl("-n", self.example.key.namespace, "exec", pod, "--", "python3", "-c", KILL)
        ).strip()
        return f"kubectl exec {pod} -- kill -9 {pid}, its worker"

    async def delete_pod(self) -> str:
        """Delete the newest worker pod."""
        pod = newest(self.look().workers).name
        return await self._do("delete", "pod", pod, "--wait=false")

    async def scale(self, workers: int) -> str:
        """Set the number of workers."""
        return await self._do("scale", self.resource, "--replicas", str(workers))

    async def suspend(self) -> str:
        """Suspend."""
        return await self.patch({"spec": {"suspend": True}})

    async def resume(self) -> str:
        """Resume, and let it come to its end."""
        return await self.patch(self.example.resume_patch(self.look().step))

    async def patch(self, patch: Manifest) -> str:
        """Change the job."""
        return await self._do("patch", self.resource, "--type", "merge", "-p", json.dumps(patch))

    async def wait(self) -> str:
        """Leave it alone."""
        return "nothing is done to it any more"

    async def _do(self, *words: str) -> str:
        await self.kubectl("-n", self.example.key.namespace, *words)
        return f"kubectl {' '.join(words)}"


def in_namespace(example: Example, namespace: str) -> Example:
    """Return the job in a namespace."""
    job = deepcopy(example.job)
    job["metadata"]["namespace"] = namespace
    return replace(example, job=job)
