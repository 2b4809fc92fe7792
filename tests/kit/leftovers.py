"""What a test leaves on a control plane that others use after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from elasticjob.kube.client import Client
from elasticjob.kube.errors import NotFound
from elasticjob.kube.kinds import Kind
from elasticjob.kube.objects import CRD, MUTATING_WEBHOOKS, NAMESPACE, NODE, VALIDATING_WEBHOOKS, Object
from hack.cluster.controlplane import ControlPlane

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE = Kind(RBAC, "v1", "ClusterRole", "clusterroles", Object, namespaced=False)
CLUSTER_ROLE_BINDING = Kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", Object, namespaced=False)
KINDS = tuple(
    kind.untyped()
    for kind in (
        MUTATING_WEBHOOKS,
        VALIDATING_WEBHOOKS,
        NAMESPACE,
        CRD,
        NODE,
        CLUSTER_ROLE,
        CLUSTER_ROLE_BINDING,
    )
)
"""Webhooks first: they could refuse the rest."""
PATIENCE = 30.0

Found = set[tuple[str, str]]


@asynccontextmanager
async def cleaned(plane: ControlPlane) -> AsyncIterator[None]:
    """Afterwards no more cluster-scoped objects are there than before, and no namespaces but ending ones."""
    async with Client(plane.config(), user_agent="tests-cleanup") as client:
        before = await _found(client)
        yield
        after = await _found(client)
        for kind in KINDS:
            for plural, name in after - before:
                if plural == kind.plural:
                    await _deleted(client, kind, name)
        await _gone(client, {name for plural, name in after - before if plural == CRD.plural})


async def _found(client: Client) -> Found:
    return {(kind.plural, found["metadata"]["name"]) for kind in KINDS for found in await client.list(kind)}


async def _deleted(client: Client, kind: Kind[dict[str, object]], name: str) -> None:
    try:
        await client.delete(kind, name)
    except NotFound:
        return


async def _gone(client: Client, names: set[str]) -> None:
    """The next test may define the same kinds: their definitions must be gone, and not only be ending."""
    async with asyncio.timeout(PATIENCE):
        while names & {found.metadata.name for found in await client.list(CRD)}:  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.02)
