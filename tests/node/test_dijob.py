"""A DIJob of the real DI-engine, unchanged, in containers; `e2e/test_dijob.py` has it as processes."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from elasticjob import __version__
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from lab.build.dijobs import Caller
from lab.clusters.installed.helm import CHART, helm, program
from lab.clusters.installed.site import READY, SYSTEM, Site
from lab.clusters.installed.stage import RESTRICTED, UNPRIVILEGED, shared_claim
from lab.clusters.node.node import Node
from lab.jobs.dijob.client import PYTHON, Story, copy_example, example

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON.exists(), reason="no DI-engine: hack/di-engine .venv installs it"),
]

SERVER: Final = "deployment/elasticjob-di-server"


@pytest.fixture
async def url(site: Site) -> AsyncIterator[str]:
    """Where di-server is, installed with Helm beside the operator, with tokens; restarted meanwhile."""
    if not isinstance(site.node, Node) or not program():
        pytest.skip("needs hack/node and Helm")
    about = {"name": "di-server", "namespace": SYSTEM}
    key = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": about,
        "stringData": {"key": secrets.token_hex()},
    }
    await site.kubectl.apply(key)
    old = await site.kubectl.names("pods", SYSTEM)
    values = ("--set", "diServer.enabled=true,diServer.secret=di-server")
    upgrade = ("upgrade", "elasticjob", str(CHART), "-n", SYSTEM, *values)
    await asyncio.to_thread(helm, *upgrade, kubeconfig=site.kubectl.kubeconfig)
    try:
        for each in (SERVER, "deployment/elasticjob-operator"):
            await site.kubectl("-n", SYSTEM, "rollout", "status", each, READY)
        # an operator that still leads would tell pods of another di-server
        await site.kubectl("-n", SYSTEM, "wait", "--for=delete", READY, *old)
        path = "jsonpath={.spec.clusterIP}"
        address = await site.kubectl("-n", SYSTEM, "get", "service", "elasticjob-di-server", "-o", path)
        yield f"http://{address}:8080"
    finally:
        await asyncio.to_thread(site.install)
        await site.kubectl("-n", SYSTEM, "delete", "secret/di-server", "--ignore-not-found", READY)


def of_the_trainer_image(volume: Path) -> Manifest:
    """The example in the trainer's image, with DI-engine and the program on the volume that pods share."""
    (packages,) = PYTHON.parents[1].glob("lib/python*/site-packages")
    shutil.copytree(packages, volume / "packages")
    held = copy_example(volume)
    work = volume / "work"
    work.mkdir()
    work.chmod(0o777)

    def change(role: str, pod: Manifest, container: Manifest) -> None:
        pod["securityContext"] = RESTRICTED
        container |= {
            "image": f"elasticjob/trainer:{__version__}",
            "command": ["python3", "-W", "ignore", f"/shared/{held}", role],
            "workingDir": "/shared/work",
            "securityContext": UNPRIVILEGED,
            "volumeMounts": [{"name": "work", "mountPath": "/shared"}],
        }
        container["env"] += [
            {"name": "PYTHONPATH", "value": "/shared/packages"},
            {"name": "STOP_VALUE", "value": "80"},
        ]

    job = example(change)
    claim = {"claimName": "digits-checkpoints"}
    job["spec"]["volumes"] = [{"name": "work", "persistentVolumeClaim": claim}]
    return job


async def test_a_job_trains_loses_a_collector_is_scaled_and_finishes(
    site: Site, admin: Client, home: str, volume: Path, url: str
) -> None:
    program = "import os; print(os.environ['DI_SERVER_TOKEN'], end='')"

    async def token() -> str:
        words = ("exec", "cartpole-coordinator", "--", "python3", "-c", program)
        return await site.kubectl("-n", home, *words)

    await site.kubectl.apply(shared_claim(home))
    job = await asyncio.to_thread(of_the_trainer_image, volume)
    async with aiohttp.ClientSession() as session:
        await Story(admin, home, volume / "work").tell(job, Caller(session, url, home), token)
