"""The demo's actions on a real cluster through its API, and on real processes of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.errors import Failure
from elasticjob.cli.story.example import ENDLESS, Example
from elasticjob.cli.story.processes import of_pod, workers_of
from elasticjob.cli.story.seen import Pod, Seen
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import POD, Object

MANAGER = "elasticjob-demo"
SCALE = Kind(ELASTICJOB.group, ELASTICJOB.version, "Scale", ELASTICJOB.plural, Object)


@dataclass(frozen=True)
class Real:
    """Actions on a job in a real cluster; `look` returns its present state."""

    client: Client
    example: Example
    look: Callable[[], Seen]

    @property
    def key(self) -> Key:
        """Name and namespace of the job."""
        return self.example.key

    async def apply(self) -> str:
        """Create the job by server-side apply; it has no end until it is resumed."""
        await self.example.training(ENDLESS).apply(self.client, MANAGER)
        workers = self.example.workers
        limits = f"{workers.get('minReplicas', '–')} to {workers.get('maxReplicas', '–')}"
        return f"applied ElasticJob {self.key.name}: {workers.get('replicas')} workers, {limits}"

    async def kill_worker(self) -> str:
        """SIGKILL a worker process of the newest pod."""
        pod = newest(self.look().workers)
        workers = workers_of(of_pod(pod.name, self.look().uid))
        if not workers:
            raise Failure(f"no worker process of pod {pod.name} is left to kill", next_step="see its logs")
        os.kill(workers[0].pid, signal.SIGKILL)
        return f"kill -9 {workers[0].pid}, the worker of pod {pod.name}"

    async def delete_pod(self) -> str:
        """Delete the newest worker pod."""
        pod = newest(self.look().workers)
        await self.client.delete(POD, pod.name, self.key.namespace, uid=pod.uid)
        return f"kubectl delete pod {pod.name}"

    async def scale(self, workers: int) -> str:
        """Set the number of workers, as kubectl scale does."""
        await self._patch(SCALE, {"spec": {"replicas": workers}}, subresource="scale")
        return f"kubectl scale elasticjob {self.key.name} --replicas {workers}"

    async def suspend(self) -> str:
        """Suspend."""
        await self._patch(ELASTICJOB, {"spec": {"suspend": True}})
        return f'kubectl patch elasticjob {self.key.name} --type merge -p \'{{"spec":{{"suspend":true}}}}\''

    async def resume(self) -> str:
        """Resume, with another number of epochs: a template may be changed while the job is suspended."""
        seen = self.look()
        await self._patch(ELASTICJOB, self.example.resume_patch(seen.step, seen.pace))
        return f"kubectl edit elasticjob {self.key.name}: suspend: false, and the --epochs to train"

    async def wait(self) -> str:
        """Do nothing."""
        return "nothing is done to it any more"

    async def _patch(self, kind: Kind[Any], patch: Manifest, subresource: str = "") -> None:
        await self.client.merge_patch(kind, self.key.name, patch, self.key.namespace, subresource=subresource)


def newest(pods: tuple[Pod, ...]) -> Pod:
    """Return the pod with the highest index. Failure if there is none."""
    if not pods:
        raise Failure("the job has no worker pod", next_step="see kubectl describe elasticjob")
    return max(pods, key=lambda pod: pod.name)
