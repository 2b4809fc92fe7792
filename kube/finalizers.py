"""Holding back the deletion of an object until its clean-up is done; only one's own entry is ever touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from elasticjob.kube.client import Client, JsonPatchOperation
from elasticjob.kube.errors import Conflict, Invalid, NotFound
from elasticjob.kube.kinds import Kind

T = TypeVar("T")

ATTEMPTS = 4


class _Metadata(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> str: ...

    @property
    def finalizers(self) -> Sequence[str]: ...

    @property
    def deletion_timestamp(self) -> object | None: ...


class Finalized(Protocol):
    """Anything with metadata that may carry finalizers."""

    @property
    def metadata(self) -> _Metadata: ...


async def add_finalizer(client: Client, kind: Kind[Any], obj: Finalized, finalizer: str) -> bool:
    """Put `finalizer` on the object unless it is there. False: the object is being deleted, or gone.

    An object of the same name and another uid is not touched.
    Raises Invalid or Conflict when the list of finalizers keeps changing under our hands.
    """
    return await _edit(client, kind, obj, finalizer, adding)


async def remove_finalizer(client: Client, kind: Kind[Any], obj: Finalized, finalizer: str) -> bool:
    """Take `finalizer` off the object; one that is gone already is fine. Otherwise as `add_finalizer`."""
    await _edit(client, kind, obj, finalizer, removing)
    return True


def adding(obj: Finalized, finalizer: str) -> list[JsonPatchOperation] | None:
    """The patch that adds an entry; [] where it is there, None where the object is being deleted."""
    present = list(obj.metadata.finalizers)
    if finalizer in present:
        return []
    if obj.metadata.deletion_timestamp is not None:
        return None
    if not present:
        return [
            {"op": "test", "path": "/metadata/resourceVersion", "value": obj.metadata.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]},
        ]
    return [
        _same(obj),
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer},
    ]


def removing(obj: Finalized, finalizer: str) -> list[JsonPatchOperation]:
    """The patch that removes an entry; [] where there is none."""
    present = list(obj.metadata.finalizers)
    if finalizer not in present:
        return []
    path = f"/metadata/finalizers/{present.index(finalizer)}"
    return [_same(obj), {"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]


def _same(obj: Finalized) -> JsonPatchOperation:
    """It is still that object: a namesake has a clean-up of its own before it."""
    return {"op": "test", "path": "/metadata/uid", "value": obj.metadata.uid}


async def _edit(client: Client, kind: Kind[Any], obj: Finalized, finalizer: str, change: Any) -> bool:
    name, namespace = obj.metadata.name, obj.metadata.namespace
    for attempt in range(ATTEMPTS):
        operations = change(obj, finalizer)
        if not operations:
            return operations is not None
        try:
            await client.json_patch(kind, name, operations, namespace)
        except NotFound:
            return False
        except (Invalid, Conflict):  # the list is not what we saw: look again
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return True
        found = await client.find(kind, name, namespace)
        if found is None or found.metadata.uid != obj.metadata.uid:
            return False
        obj = found
    return False
