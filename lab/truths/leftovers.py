"""Finds objects that a test leaves on a shared control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import (
    CLUSTER_ROLE,
    CRD,
    MUTATING_WEBHOOKS,
    NAMESPACE,
    NODE,
    VALIDATING_WEBHOOKS,
    Object,
)
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.volumes import PERSISTENT_VOLUME
from lab.waiting import until

RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLE_BINDING = Kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", Object, namespaced=False)
WEBHOOKS = (MUTATING_WEBHOOKS.untyped(), VALIDATING_WEBHOOKS.untyped())
OTHERS = tuple(
    kind.untyped() for kind in (NAMESPACE, NODE, PERSISTENT_VOLUME, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
)
DEFINITION = CRD.untyped()

Found = set[tuple[str, str, str]]
"""Plural, name and uid: a namesake of what was there before is another object, and is removed."""


@asynccontextmanager
async def cleaned(plane: ControlPlane) -> AsyncIterator[None]:
    """Afterwards no more cluster-scoped objects are there than before, and no custom objects.

    Namespaces may still be ending. The product's own kinds stay defined: a real server needs seconds to
    forget one, now and then half a minute.
    """
    async with Client(plane.config(), user_agent="tests-cleanup") as client:
        before = await _found(client)
        yield
        left = await _found(client) - before
        await _delete(client, WEBHOOKS, left)  # they could refuse the rest
        definitions = await client.list(DEFINITION)
        for definition in definitions:
            await _delete_instances(client, definition)
        foreign = [each for each in definitions if each["spec"]["group"] != ELASTICJOB.group]
        for definition in foreign:
            await _delete_definition(client, definition["metadata"]["name"])
        await _delete(client, OTHERS, left)


async def _found(client: Client) -> Found:
    return {
        (kind.plural, found["metadata"]["name"], found["metadata"]["uid"])
        for kind in (*WEBHOOKS, *OTHERS)
        for found in await client.list(kind)
    }


async def _delete(client: Client, kinds: tuple[Kind[Manifest], ...], left: Found) -> None:
    for kind in kinds:
        for plural, name, _ in sorted(left):
            if plural == kind.plural:
                with suppress(NotFound):
                    await client.delete(kind, name)


async def _delete_instances(client: Client, definition: Manifest) -> None:
    spec = definition["spec"]
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    namespaced = spec["scope"] == "Namespaced"
    names = spec["names"]
    kind = Kind(spec["group"], version, names["kind"], names["plural"], Object, namespaced).untyped()
    with suppress(NotFound):  # the definition is on its way in or out
        await remove_all(client, kind)


async def remove_all(client: Client, kind: Kind[Manifest], *, grace: int | None = None) -> None:
    """Delete the objects of a kind, those that finalizers hold back too; others may be at it as well."""
    for found in await client.list(kind):
        about = found["metadata"]
        with suppress(NotFound):
            await let_go(client, kind, found)
            await client.delete(kind, about["name"], about.get("namespace"), grace=grace)


async def let_go(client: Client, kind: Kind[Manifest], found: Manifest) -> None:
    """No finalizer holds an object back. Raises NotFound when it is gone."""
    about = found["metadata"]
    nothing = {"metadata": {"finalizers": None}}
    await client.merge_patch(kind, about["name"], nothing, about.get("namespace"))


async def _delete_definition(client: Client, name: str) -> None:
    """The next test may define it again: it must be gone, and not only be ending."""

    async def gone() -> bool:
        await asyncio.sleep(0.05)  # a list of definitions is large, and the server has other things to do
        return await client.find(CRD, name) is None

    with suppress(NotFound):
        await client.delete(CRD, name)
    await until(gone, f"the definition {name} is gone")
