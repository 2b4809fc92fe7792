"""A DIJob of the real DI-engine, unchanged, in containers; `e2e/test_dijob.py` has it as processes."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from lab.build.dijobs import Caller
from lab.clusters.installed.helm import program
from lab.clusters.installed.installation import READY, SYSTEM, Installation
from lab.clusters.installed.stage import RESTRICTED, TRAINER, UNPRIVILEGED, furniture
from lab.clusters.node.node import Node
from lab.jobs.dijob.client import PYTHON, Story, copy_example, example

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON.exists(), reason="no DI-engine: hack/di-engine .venv installs it"),
]


@pytest.fixture
async def url(node: Installation) -> AsyncIterator[str]:
    """Where di-server is, installed with Helm beside the operator, with tokens; restarted meanwhile."""
    if not isinstance(node.machine, Node) or not program():
        pytest.skip("needs hack/node and Helm")
    about = {"name": "di-server", "namespace": SYSTEM}
    key = {"apiVersion": "v1", "kind": "Secret", "metadata": about}
    await node.kubectl.apply({**key, "stringData": {"key": secrets.token_hex()}})
    async with node.beside("di-server", "diServer.enabled=true", "diServer.secret=di-server") as host:
        yield f"http://{host}:8080"
    await node.kubectl("-n", SYSTEM, "delete", "secret/di-server", "--ignore-not-found", READY)


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
            "image": TRAINER,
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
    node: Installation, admin: Client, home: str, volume: Path, url: str
) -> None:
    program = "import os; print(os.environ['DI_SERVER_TOKEN'], end='')"

    async def token() -> str:
        words = ("exec", "cartpole-coordinator", "--", "python3", "-c", program)
        return await node.kubectl("-n", home, *words)

    await node.kubectl.apply(*furniture(home))
    job = await asyncio.to_thread(of_the_trainer_image, volume)
    async with aiohttp.ClientSession() as session:
        await Story(admin, home, volume / "work").tell(job, Caller(session, url, home), token)
