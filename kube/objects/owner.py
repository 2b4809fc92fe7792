"""Owner references: how the garbage collector and controllers find an object's owner."""

from __future__ import annotations

from typing import Any, Protocol

from elasticjob.kube.objects.kinds import Kind, Manifest


class Metadata(Protocol):
    """The identity of an object."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


class Named(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Metadata: ...


def owner_reference(owner: Named, kind: Kind[Any], *, controller: bool = True) -> Manifest:
    """The entry of metadata.ownerReferences that makes `owner` the owner.

    Only a controller blocks the owner's deletion: that may need rights on the owner's finalizers.
    """
    about = owner.metadata
    found = {"apiVersion": kind.api_version, "kind": kind.name, "name": about.name, "uid": about.uid}
    return found | {"controller": True, "blockOwnerDeletion": True} if controller else found
