"""Brain in the cluster: a job is sized by the history of an earlier one."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from elasticjob import __version__
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.story.watched import NAME, ROLE
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.installed.helm import CHART, helm, program
from lab.clusters.installed.kubectl import CommandFailed
from lab.clusters.installed.site import READY, SYSTEM, Site
from lab.clusters.installed.stage import RESTRICTED, UNPRIVILEGED
from lab.clusters.installed.timeline import Row
from lab.clusters.node.node import Node
from lab.jobs.history import LIMITS, PACED, tell
from lab.jobs.job import STEPS
from lab.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

BRAIN: Final = "deployment/elasticjob-brain"
TOKEN: Final = "what people read with"
GATE: Final = "/tmp/gate"
"""In each container."""
QUICK: Final = ("ELASTICJOB_BRAIN_EVERY=0.3", "ELASTICJOB_BRAIN_PACE=0.02")


@dataclass(frozen=True)
class OnNode:
    """Where Brain's story is told: jobs in containers, Brain as people see it, through its Service."""

    site: Site
    namespace: str
    url: str

    async def apply(self, name: str) -> None:
        await self.site.kubectl.apply(a_job(self.namespace, name))

    async def let_go(self, name: str) -> None:
        kubectl = self.site.kubectl
        over = ("-n", self.namespace, "wait", "--for=condition=Complete", f"elasticjob/{name}", READY)
        waiting = asyncio.ensure_future(kubectl(*over))
        while not waiting.done():  # Brain may add a pod at any time
            await self._open_gates(name)
            await asyncio.wait([waiting], timeout=5)
        await waiting

    async def _open_gates(self, name: str) -> None:
        """Let the workers that run now do their last step."""
        kubectl, program = self.site.kubectl, ("python3", "-c", f"open({GATE!r}, 'w')")
        chosen = ("-l", f"{NAME}={name},{ROLE}=worker", "--field-selector=status.phase=Running")
        pods = await kubectl("-n", self.namespace, "get", "pods", *chosen, "-o", "name")
        for pod in pods.split():
            with suppress(CommandFailed):  # it has ended since
                await kubectl("-n", self.namespace, "exec", pod, "--", *program)

    async def known(self, name: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.url}/v1/jobs/{self.namespace}/{name}", headers=headers) as reply,
            ):
                return dict(await reply.json(content_type=None))
        except aiohttp.ClientError:
            return {}

    async def lose_brain(self) -> None:
        kubectl, chosen = self.site.kubectl, ("-l", "app.kubernetes.io/component=brain")
        await kubectl("-n", SYSTEM, "delete", "pod", *chosen, "--force")
        second = "--for=jsonpath={.status.training.worldSize}=2"
        await kubectl("-n", self.namespace, "wait", second, "elasticjob/first", READY)
        await kubectl("-n", SYSTEM, "rollout", "status", BRAIN, READY)

    async def reasons(self) -> list[str]:
        plans = await self.site.kubectl("-n", self.namespace, "get", "scaleplans", "-o", "json")
        return [plan["spec"]["reason"] for plan in json.loads(plans)["items"]]


@pytest.fixture
async def place(site: Site, home: str) -> AsyncIterator[OnNode]:
    """Brain, installed with Helm beside the operator, with its database on a volume of the node."""
    if not isinstance(site.node, Node) or not program():
        pytest.skip("needs hack/node and Helm")
    site.load("brain")
    folder = site.node.volumes / f"brain-{secrets.token_hex(3)}"
    folder.mkdir()
    folder.chmod(0o777)
    tokens = {"key": "of this test", "reading-token": TOKEN}
    await site.kubectl.apply(
        of_kind("Secret", "elasticjob-brain", stringData=tokens),
        of_kind("PersistentVolume", folder.name, spec=volume(folder)),
    )
    old = await site.kubectl.names("pods", SYSTEM)
    upgrade = ("upgrade", "elasticjob", str(CHART), "-n", SYSTEM, "--set", "brain.enabled=true")
    await asyncio.to_thread(helm, *upgrade, kubeconfig=site.kubectl.kubeconfig)
    try:
        await site.kubectl("-n", SYSTEM, "set", "env", BRAIN, *QUICK)
        for each in (BRAIN, "deployment/elasticjob-operator"):
            await site.kubectl("-n", SYSTEM, "rollout", "status", each, READY)
        # an operator that still leads would make jobs without Brain
        await site.kubectl("-n", SYSTEM, "wait", "--for=delete", READY, *old)
        await until(lambda: leads(site), "Brain leads")
        path = "jsonpath={.spec.clusterIP}"
        address = await site.kubectl("-n", SYSTEM, "get", "service", "elasticjob-brain", "-o", path)
        yield OnNode(site, home, f"http://{address}:8090")
    finally:
        # first its pods, since Helm takes their rights before them; the chart leaves the claim to its owner
        with suppress(CommandFailed):  # it was not installed
            await site.kubectl("-n", SYSTEM, "scale", BRAIN, "--replicas=0")
            chosen = await site.kubectl.names("pods", SYSTEM)
            brains = [name for name in chosen if name.startswith("pod/elasticjob-brain-")]
            await site.kubectl("-n", SYSTEM, "wait", "--for=delete", READY, *brains)
        await asyncio.to_thread(site.install)
        claim, secret = "persistentvolumeclaim/elasticjob-brain", "secret/elasticjob-brain"
        ours = (claim, secret, f"persistentvolume/{folder.name}")
        await site.kubectl("-n", SYSTEM, "delete", *ours, "--ignore-not-found", READY)
        shutil.rmtree(folder)


async def leads(site: Site) -> bool:
    """Whether a Brain that runs holds the lease; one that was killed holds it for some seconds."""
    pods = {name.removeprefix("pod/") for name in await site.kubectl.names("pods", SYSTEM)}
    path = "jsonpath={.spec.holderIdentity}"
    holder = await site.kubectl("-n", SYSTEM, "get", "lease", "elasticjob-brain", "-o", path)
    return holder.partition("_")[0] in pods


def of_kind(kind: str, name: str, **fields: Any) -> Manifest:
    """Return an object beside Brain."""
    about = {"name": name, "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": kind, "metadata": about, **fields}


def volume(folder: Path) -> Manifest:
    """Return the spec of the volume that Brain's claim is bound to."""
    return {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": SYSTEM, "name": "elasticjob-brain"},
    }


def a_job(namespace: str, name: str) -> Manifest:
    """Return a job that says nothing about its sizes, but that there are at most two workers."""
    container = {
        "name": "main",
        "image": f"elasticjob/trainer:{__version__}",
        "command": ["elasticjob", "run", "--no-python", "python3", "-c", STEPS.read_text(), *PACED, GATE],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "securityContext": UNPRIVILEGED,
    }
    worker = {
        "minReplicas": 1,
        "maxReplicas": 2,
        "template": {"spec": {"containers": [container], "securityContext": RESTRICTED}},
    }
    spec = {
        "distributionStrategy": "AllreduceStrategy",
        "optimizeMode": "cluster",
        "resourceLimits": {**LIMITS, "cpu": "1"},
        "replicaSpecs": {"worker": worker},
    }
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": ELASTICJOB.api_version, "kind": ELASTICJOB.name, "metadata": about, "spec": spec}


async def test_a_job_is_sized_by_the_history_of_an_earlier_one(site: Site, place: OnNode) -> None:
    began = time.time()
    await tell(place)

    async def is_measured() -> bool:
        return any(sample["goodput"] for sample in (await place.known("second")).get("samples", []))

    await until(is_measured, "the metrics of masters tell the goodput")  # and nothing else does
    await place.let_go("second")
    took = time.time() - began
    site.rows.append(Row(0.0, "cluster mode", "the second job starts with what the first one learnt", took))
