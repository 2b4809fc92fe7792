"""The clusters on which a story can be played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from elasticjob.cli.laptop.laptop import Laptop, laptop, operator_of
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode, machine_capacity
from elasticjob.kube.client.client import Client
from lab.clusters.plane.controlplane import APISERVER, ControlPlane
from lab.jobs.crowd import Plane
from lab.jobs.life.play import nursery
from lab.jobs.queued import yard
from lab.jobs.servers import forked
from lab.jobs.tenancy import town
from lab.story import Cluster, Job

MACHINES: Final = ("m1", "m2", "m3", "m4")


@asynccontextmanager
async def devcluster(folder: Path, job: Job) -> AsyncIterator[Laptop]:
    """Start a cluster of this machine with its operator."""
    async with laptop(folder) as here:
        yield here


@asynccontextmanager
async def machines(folder: Path, job: Job) -> AsyncIterator[Laptop]:
    """Start one of several machines."""
    nodes = [VirtualNode(name, machine_capacity()) for name in MACHINES]
    async with (
        DevCluster(folder, nodes=nodes) as cluster,
        Client(cluster.config()) as client,
        operator_of(cluster.kubeconfig, folder) as operator,
    ):
        yield Laptop(cluster.kubeconfig, client, folder, operator)


@asynccontextmanager
async def processes(folder: Path, job: Job) -> AsyncIterator[Path]:
    """Return the folder of a master and agents that are processes without Kubernetes."""
    yield folder


@asynccontextmanager
async def plane(folder: Path, job: Job) -> AsyncIterator[Plane]:
    """Start a real control plane, whose API server can be killed."""
    # programs end with the thread that started them: one thread, to the end, does all that
    hand, loop = ThreadPoolExecutor(1, "control-plane"), asyncio.get_running_loop()
    control = ControlPlane(folder / "plane")

    def die_and_come_back() -> None:
        control.kill(APISERVER)
        control.start(APISERVER)

    async def crash() -> None:
        await loop.run_in_executor(hand, die_and_come_back)

    with hand:
        try:
            await loop.run_in_executor(hand, control.start)
            yield Plane(control.config(), folder, crash)
        finally:
            await loop.run_in_executor(hand, control.stop)


CLUSTERS: Final[Mapping[str, Cluster]] = {
    "devcluster": devcluster,
    "machines": machines,
    "processes": processes,
    "plane": plane,
    "kueue": yard,
    "warm": nursery,
    "town": town,
    "forked": forked,
}
