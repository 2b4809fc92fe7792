"""A whole cluster for a test: nodes of this machine that run pods as processes, with either API server.

On devcluster that is a `DevCluster`. On the real control plane its nodes join: the real scheduler binds pods,
the real controller-manager makes service accounts, collects garbage, deletes namespaces.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from ipaddress import ip_network
from itertools import islice
from pathlib import Path
from typing import Protocol

from elasticjob.controllers.install import install
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.container.processes import SUPERVISOR
from elasticjob.devcluster.nodes import HOST, Api, Nodes
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import NODE, POD
from lab.clusters.cluster import Cluster
from lab.clusters.plane.controlplane import MASTERS, ControlPlane
from lab.clusters.volumes import volumes
from lab.truths.leftovers import cleaned, remove_all
from lab.waiting import until

SERVICES = ip_network("127.128.0.0/9")
"""Loopback, where the proxy can listen; not devcluster's ranges. Each control plane has a /16 of its own."""
NO_ENDPOINTS = "*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"
"""A real server refuses loopback addresses in endpoints; the proxy reads services and pods instead."""


class WholeClusters(Protocol):
    """How a test gets one. `rbac` makes roles count on devcluster; on a real server they always do.

    `supervisor` starts containers: that of `cli/laptop/preloaded.py` for those that train.
    """

    def __call__(
        self, folder: Path, *, rbac: bool = False, supervisor: Sequence[str] = SUPERVISOR
    ) -> AbstractAsyncContextManager[Cluster]: ...


@contextmanager
def real_plane(folder: Path, number: int = 0) -> Iterator[ControlPlane]:
    """Start the control plane that the tests of a process share; it knows the product's kinds.

    They are defined before the controller-manager starts: it looks for new kinds twice a minute only, and
    until then does not collect what objects of theirs own.
    """
    services = next(islice(SERVICES.subnets(new_prefix=16), number, None))
    plane = ControlPlane(
        folder,
        scheduler=True,
        services=str(services),
        controller_manager_flags=[f"--controllers={NO_ENDPOINTS}"],
    )
    try:
        plane.start("etcd")
        plane.start("kube-apiserver")
        with ThreadPoolExecutor(1) as thread:  # the loop of this one belongs to the tests
            thread.submit(asyncio.run, _define(plane)).result()
        plane.start()
        yield plane
    finally:
        plane.stop()


async def _define(plane: ControlPlane) -> None:
    async with Client(plane.config()) as client:
        await install(client)


def whole_clusters(plane: ControlPlane | None) -> WholeClusters:
    """How a test gets one, on devcluster or on the real control plane; at one time there is one of these."""

    @asynccontextmanager
    async def on_devcluster(
        folder: Path, *, rbac: bool = False, supervisor: Sequence[str] = SUPERVISOR
    ) -> AsyncIterator[Cluster]:
        async with DevCluster(folder, rbac=rbac, supervisor=supervisor) as cluster:
            yield cluster

    @asynccontextmanager
    async def on_real(
        folder: Path, *, rbac: bool = False, supervisor: Sequence[str] = SUPERVISOR
    ) -> AsyncIterator[Cluster]:
        assert plane is not None
        api = Api(plane.config("devcluster", MASTERS), plane.ca_pem, kubelet_tls(plane))
        async with cleaned(plane), Nodes(folder, api, beside=volumes, supervisor=supervisor):
            await _ready(plane)
            async with _emptied(plane):
                yield plane

    return on_real if plane else on_devcluster


def kubelet_tls(plane: ControlPlane) -> ssl.SSLContext:
    """How a node serves logs: to those alone that show a certificate of the cluster's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = plane.pki.server("kubelet", [HOST])
    context.load_cert_chain(pair.certificate, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=plane.ca_pem)
    return context


async def _ready(plane: ControlPlane) -> None:
    """Until the scheduler may use the node: the controller-manager has taken the taint of new nodes away."""
    async with Client(plane.config()) as client:

        async def untainted() -> bool:
            return not any(node["spec"].get("taints") for node in await client.list(NODE.untyped()))

        await until(untainted, "the nodes have no taints")


@asynccontextmanager
async def _emptied(plane: ControlPlane) -> AsyncIterator[None]:
    """Afterwards there are no pods: their nodes, which alone can end them, are still there."""
    yield
    async with Client(plane.config()) as client:
        await remove_all(client, POD.untyped(), grace=0)
