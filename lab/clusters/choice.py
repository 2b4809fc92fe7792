"""The clusters on which a story can be played."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from elasticjob.cli.laptop.laptop import Laptop, laptop, operator_of
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode, machine_capacity
from elasticjob.kube.client.client import Client
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


CLUSTERS: Final[Mapping[str, Cluster]] = {
    "devcluster": devcluster,
    "machines": machines,
    "processes": processes,
}
