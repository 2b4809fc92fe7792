"""A DIJob of the real DI-engine, unchanged, as processes of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.cli.laptop.ports import free_port
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound, ServerError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab import programs
from lab.build.dijobs import Caller
from lab.jobs.dijob.client import PYTHON, Story, copy_example, example
from lab.processes import Process
from lab.running import beside
from lab.waiting import until

UNSHARE: Final = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
"""A devcluster has no DNS: its pods see /etc/hosts of this test, where nobody else does."""

pytestmark = [
    pytest.mark.story,
    pytest.mark.skipif(not PYTHON.exists(), reason="no DI-engine: hack/di-engine .venv installs it"),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0,
        reason="names of pods need a mount namespace, and that needs root",
    ),
]


@asynccontextmanager
async def cluster_of(folder: Path) -> AsyncIterator[tuple[Client, str]]:
    """Run a devcluster with the operator in a mount namespace of its own, and di-server beside it."""
    hosts, kubeconfig, port = folder / "hosts", folder / "kubeconfig", free_port()
    shutil.copy("/etc/hosts", hosts)
    flags = ["--operator", "--kubeconfig", str(kubeconfig), "--state", str(folder / "state")]
    command = [*UNSHARE, str(hosts), sys.executable, "-m", "elasticjob.cli", "devcluster", *flags]
    settings = {**os.environ, "ELASTICJOB_OPERATOR_DI_SERVER": f"http://127.0.0.1:{port}"}
    cluster = Process("devcluster", command, folder, settings)
    cluster.spawn()
    try:
        await until(lambda: serves(kubeconfig), "DIJobs are served")
        async with (
            Client(await config.load(kubeconfig, None)) as client,
            programs.di_server(kubeconfig, folder, port=port) as server,
            beside(name_pods(client, hosts)),
        ):
            yield client, server.url
    finally:
        await cluster.down()


async def serves(kubeconfig: Path) -> bool:
    """Whether the operator is ready to be given jobs."""
    if not os.path.isfile(kubeconfig):  # noqa: ASYNC240 - a look, not a read
        return False
    async with Client(await config.load(kubeconfig, None)) as client:
        try:
            await client.create(DIJOB.untyped(), of_this_machine(kubeconfig.parent), "default", dry_run=True)
        except (NotFound, ServerError):  # no definition, or no webhook
            return False
    return True


async def name_pods(client: Client, hosts: Path) -> None:
    """Keep the addresses of pods in the file of names."""
    with hosts.open("r+") as file:
        known = file.read()
        while True:
            found = [pod for pod in await client.list(POD, "default") if pod.status.pod_ip]
            lines = [f"{pod.status.pod_ip} {pod.metadata.name}.default\n" for pod in found]
            file.seek(0)
            file.write(known + "".join(lines))
            file.truncate()
            file.flush()
            await asyncio.sleep(0.1)


def of_this_machine(folder: Path) -> Manifest:
    """The example, with programs of this machine in the place of its image."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    held = str(folder / copy_example(folder))

    def change(role: str, _: Manifest, container: Manifest) -> None:
        container |= {"image": "python:3.11", "workingDir": str(work)}
        container["command"] = [str(PYTHON), "-W", "ignore", held, role]
        container["env"] += [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": str(work)},
            {"name": "STOP_VALUE", "value": "60"},
        ]
        del container["volumeMounts"]

    job = example(change)
    del job["spec"]["volumes"]
    return job


@pytest.mark.timeout(1800)
async def test_a_job_trains_loses_a_collector_is_scaled_and_finishes(tmp_path: Path) -> None:
    async def token() -> str:
        return ""

    async with cluster_of(tmp_path) as (client, url), aiohttp.ClientSession() as session:
        story = Story(client, "default", tmp_path / "work")
        await story.tell(of_this_machine(tmp_path), Caller(session, url, "default"), token)
