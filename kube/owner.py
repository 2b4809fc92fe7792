"""Who an object belongs to: the references by which the garbage collector and controllers find owners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from elasticjob.kube.kinds import Kind, Manifest


class AlreadyOwned(ValueError):
    """Another controller owns the object."""


class Metadata(Protocol):
    """What identifies an object."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


class Named(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Metadata: ...


def owner_reference(owner: Named, kind: Kind[Any], *, controller: bool = True) -> Manifest:
    """The entry of metadata.ownerReferences that makes `owner` the owner."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def set_controller(manifest: Manifest, owner: Named, kind: Kind[Any], namespace: str = "") -> Manifest:
    """The manifest with `owner` as its controller; `namespace` is the owner's.

    Raises AlreadyOwned when another controller owns it, ValueError when the owner lives in another namespace:
    the garbage collector would delete such an object at once.
    """
    metadata = manifest.get("metadata") or {}
    if kind.namespaced and metadata.get("namespace") != namespace:
        raise ValueError(
            f"{metadata.get('name')!r} in namespace {metadata.get('namespace')!r} cannot be owned by "
            f"{kind.name} {owner.metadata.name!r} in {namespace!r}: owners live in the same namespace"
        )
    references = list(metadata.get("ownerReferences") or ())
    if other := _other_controller(references, owner.metadata.uid):
        raise AlreadyOwned(
            f"{metadata.get('name')!r} is controlled by {other['kind']} {other['name']!r} already"
        )
    kept = [reference for reference in references if reference["uid"] != owner.metadata.uid]
    return manifest | {"metadata": metadata | {"ownerReferences": [*kept, owner_reference(owner, kind)]}}


def _other_controller(references: Iterable[Manifest], uid: str) -> Manifest | None:
    return next((found for found in references if found.get("controller") and found["uid"] != uid), None)
