"""Owner references: how the garbage collector and controllers find an object's owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from elasticjob.kube.objects.kinds import Kind, Manifest

T = TypeVar("T")


class Metadata(Protocol):
    """The identity of an object."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


class HasMetadata(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Metadata: ...


class Reads(Protocol):
    """A client."""

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """The object. Raises NotFound."""


@dataclass(frozen=True)
class Owner:
    """An object of the installation: when it is deleted, so is what it owns. Without a namespace, in none."""

    kind: Kind[Any]
    name: str
    namespace: str | None = None


async def owned_by(owner: Owner | None, client: Reads) -> Manifest:
    """The metadata that names the owner; empty without one. Raises NotFound if it is gone."""
    if owner is None:
        return {}
    found = await client.get(owner.kind, owner.name, owner.namespace)
    return {"ownerReferences": [owner_reference(found, owner.kind, controller=False)]}


def owner_reference(owner: HasMetadata, kind: Kind[Any], *, controller: bool = True) -> Manifest:
    """The entry of metadata.ownerReferences that makes `owner` the owner.

    Only a controller blocks the owner's deletion: that may need rights on the owner's finalizers.
    """
    about = owner.metadata
    found = {"apiVersion": kind.api_version, "kind": kind.name, "name": about.name, "uid": about.uid}
    return found | {"controller": True, "blockOwnerDeletion": True} if controller else found
