"""Objects as a server would send them, and as watchers have them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from elasticjob.kube.cache.wire import Item, item_of
from elasticjob.kube.objects.kinds import Key, Kind

T = TypeVar("T")
Manifest = dict[str, Any]


def manifest(name: str, rv: int = 1, *, uid: str = "", namespace: str = "ns", **metadata: Any) -> Manifest:
    """A ConfigMap; further metadata in JSON's names."""
    base = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(rv)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": base | metadata, "data": {"rv": str(rv)}}


def view(
    kind: Kind[T], name: str, namespace: str = "team", *, metadata: Manifest | None = None, **body: Any
) -> T:
    """An object as its kind decodes it; `body` are its fields beside the metadata."""
    return kind.convert({"metadata": {"name": name, "namespace": namespace, **(metadata or {})}, **body})


def owned(name: str, owner: str, rv: int = 1, *, kind: str = "ConfigMap", uid: str = "") -> Manifest:
    """A Secret with a controller."""
    api_version = "v1" if kind == "ConfigMap" else "apps/v1"
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "controller": True}
    made = manifest(name, rv, ownerReferences=[reference | {"uid": uid or f"uid-{owner}"}])
    return made | {"kind": "Secret", "data": {}}


def item(name: str, rv: int = 1, **more: Any) -> Item:
    return item_of(msgspec.json.encode(manifest(name, rv, **more)))


def as_item(made: Manifest) -> Item:
    return item_of(msgspec.json.encode(made))


def event(type_: str, made: Manifest) -> bytes:
    """One line of a watch."""
    return msgspec.json.encode({"type": type_, "object": made}) + b"\n"


def bookmark(rv: int, *, initial_done: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if initial_done else {}
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(rv), "annotations": annotations}})


def status(code: int, reason: str, message: str = "no", **details: Any) -> Manifest:
    """A failure, as the API server's Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
        "details": details,
    }


def key(name: str) -> Key:
    return Key("ns", name)
