"""A DIJob of the real DI-engine, unchanged: it trains, loses a collector, is scaled by hand, and finishes."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import environ
from os.path import isfile
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml

from elasticjob.api.diengine import names
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.cli.laptop import free_port
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound, ServerError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, POD, SERVICE, Pod
from tests.kit.dijobs import Caller
from tests.kit.diserver import DiServerProcess, di_server_of
from tests.kit.waiting import until

EXAMPLE: Final = Path("examples/dijob").resolve()
PYTHON: Final = Path(sys.prefix) / "peers" / "di-engine" / "bin" / "python"
UNSHARE: Final = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
"""A devcluster has no DNS: its pods see /etc/hosts of this test, where nobody else does."""
LIMIT: Final = 240.0

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON.exists(), reason="no DI-engine: hack/di-engine .venv installs it"),
    pytest.mark.skipif(sys.platform != "linux", reason="names of pods need a mount namespace"),
]


@dataclass(frozen=True)
class Place:
    """A devcluster whose pods find each other by name, and a di-server."""

    client: Client
    server: DiServerProcess
    folder: Path

    async def pods(self, role: str) -> dict[str, Pod]:
        """The pods of a role that are not on their way out."""
        found = await self.client.list(POD, "default", labels=f"{names.LABEL_ROLE}={role}")
        return {pod.metadata.name: pod for pod in found if pod.metadata.deletion_timestamp is None}

    async def log(self, pod: str) -> str:
        """What a pod has printed."""
        return b"".join([chunk async for chunk in self.client.logs(pod, "default")]).decode(errors="replace")


@asynccontextmanager
async def place_of(folder: Path) -> AsyncIterator[Place]:
    """Run a devcluster with the operator in a mount namespace of its own, and di-server beside it."""
    hosts, kubeconfig, port = folder / "hosts", folder / "kubeconfig", free_port()
    shutil.copy("/etc/hosts", hosts)
    flags = ["--operator", "--kubeconfig", str(kubeconfig), "--state", str(folder / "state")]
    command = [*UNSHARE, str(hosts), sys.executable, "-m", "elasticjob.cli", "devcluster", *flags]
    settings = {**environ, "ELASTICJOB_OPERATOR_DI_SERVER": f"http://127.0.0.1:{port}"}
    with (folder / "devcluster.log").open("wb") as log:
        cluster = await asyncio.create_subprocess_exec(*command, env=settings, stdout=log, stderr=log)
    try:
        await until(lambda: serves(kubeconfig), "DIJobs are served")
        async with (
            Client(await config.load(kubeconfig, None)) as client,
            di_server_of(kubeconfig, folder, port) as server,
        ):
            naming = asyncio.create_task(name_pods(client, hosts))
            yield Place(client, server, folder)
            naming.cancel()
    finally:
        cluster.terminate()
        await cluster.wait()


async def serves(kubeconfig: Path) -> bool:
    """Whether the operator is ready to be given jobs."""
    if not isfile(kubeconfig):  # noqa: ASYNC240 - a look, not a read
        return False
    async with Client(await config.load(kubeconfig, None)) as client:
        try:
            await client.create(DIJOB.untyped(), manifest(kubeconfig.parent), "default", dry_run=True)
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


def manifest(folder: Path) -> Manifest:
    """The example, with programs of this machine in the place of its image."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    job: Manifest = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    del job["spec"]["volumes"]
    for role in ("coordinator", "collector", "learner"):
        (container,) = job["spec"][role]["template"]["spec"]["containers"]
        container |= {"image": "python:3.11", "workingDir": str(work)}
        container["command"] = [str(PYTHON), "-W", "ignore", str(EXAMPLE / "cartpole.py"), role]
        container["env"] = [
            *container["env"],
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": str(work)},
            {"name": "STOP_VALUE", "value": "80"},
        ]
        del container["volumeMounts"]
    return job


@pytest.mark.timeout(600)
async def test_a_job_trains_loses_a_collector_is_scaled_and_finishes(tmp_path: Path) -> None:
    async with place_of(tmp_path) as place, aiohttp.ClientSession() as session:
        caller = Caller(session, place.server.url, "default")
        await place.client.create(DIJOB.untyped(), manifest(tmp_path), "default")

        async def asks() -> bool:
            return len(await place.pods("collector")) == 2 and len(await place.pods("learner")) == 1

        await until(asks, "the coordinator has asked for its replicas", LIMIT)

        async def sends() -> bool:
            return "send data" in await place.log("cartpole-coordinator")

        await until(sends, "collectors send data", LIMIT)
        lost = min(await place.pods("collector"))
        await place.client.delete(POD, lost, "default")  # as when its machine is drained

        async def is_gone() -> bool:
            return await place.client.find(POD, lost, "default") is None

        await until(is_gone, "the coordinator has taken leave of the lost collector", LIMIT)
        (by_hand,) = (await caller.add(1)).collectors  # as with curl

        async def connects() -> bool:
            return f"Succeed to connect to collector({by_hand})" in await place.log("cartpole-coordinator")

        await until(connects, "the coordinator uses the collector that was added by hand", LIMIT)
        await until(lambda: has_succeeded(place), "the agent has converged", LIMIT)
        assert "Your RL agent is converged" in await place.log("cartpole-coordinator")
        await until(lambda: is_cleaned_up(place), "what ran is gone")
        told = {event.reason for event in await place.client.list(EVENT, "default")}
        assert {"DIJobCreated", "DIJobSucceeded", "SuccessfulCreate"} <= told


async def has_succeeded(place: Place) -> bool:
    found = await place.client.get(DIJOB, "cartpole", "default")
    assert found.status.phase != "Failed", await place.log("cartpole-coordinator")
    return found.status.phase == "Succeeded"


async def is_cleaned_up(place: Place) -> bool:
    """Only ended pods stay, for their logs."""
    left = await place.client.list(POD, "default", labels=names.OURS)
    services = await place.client.list(SERVICE, "default", labels=names.OURS)
    return not services and {pod.status.phase for pod in left} <= {"Succeeded", "Failed"}
