"""The paths by which a custom resource declares its size: what may stand at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticjob.devcluster.server.errors import Cause, internal
from elasticjob.devcluster.server.jsonpath import compile_path
from elasticjob.devcluster.server.names import wrong
from elasticjob.devcluster.server.registry import Resource, Scale
from elasticjob.devcluster.server.store import Manifest

_LARGEST = 2**31 - 1
_GO = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}


def scale_problems(scale: Scale, new: Manifest, subresource: str) -> Iterator[Cause]:
    """What is wrong with the numbers and the selector of an object; of its status, when only that is
    written.
    """
    if subresource != "status":
        yield from _number_problems(scale.replicas, new)
    yield from _number_problems(scale.status_replicas, new)
    if scale.selector:
        value, problem = lookup(new, scale.selector)
        if problem or not isinstance(value, str | None):
            yield wrong(scale.selector, "", problem or _mistyped(scale.selector, value, "string"))


def _number_problems(path: str, new: Manifest) -> Iterator[Cause]:
    value, problem = lookup(new, path)
    if problem:
        yield wrong(path, 0, problem)
    elif value is None:
        return
    elif not isinstance(value, int) or isinstance(value, bool):
        yield wrong(path, 0, _mistyped(path, value, "int64"))
    elif value < 0:
        yield wrong(path, value, "should be a non-negative integer")
    elif value > _LARGEST:
        yield wrong(path, value, f"should be less than or equal to {_LARGEST}")


def scale_of(resource: Resource, body: Manifest, *, lenient: bool = False) -> Manifest:
    """The Scale of an object, by the paths that its resource declares. InternalError without a size,
    unless lenient.
    """
    paths, metadata = resource.scale or Scale("", ""), body["metadata"]
    replicas = _first(body, paths.replicas)
    if replicas is None and not lenient and resource.custom:
        raise internal(f'the spec replicas field "{paths.replicas}" does not exist')
    selector = _first(body, paths.selector) if paths.selector else ""
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = {"replicas": _first(body, paths.status_replicas) or 0}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status | ({"selector": _selector_text(selector)} if selector else {}),
    }


def _selector_text(selector: Any) -> str:
    if isinstance(selector, dict):
        return ",".join(f"{name}={value}" for name, value in (selector.get("matchLabels") or {}).items())
    return str(selector)


def _first(body: Manifest, path: str) -> Any:
    return next(iter(compile_path(path)(body)), None)


def lookup(body: Manifest, path: str) -> tuple[Any, str]:
    """What stands at a dotted path, or why nothing can."""
    value: Any = body
    for part in path.removeprefix(".").split("."):
        if value is None:
            return None, ""
        if not isinstance(value, dict):
            return None, _mistyped(path, value, "map[string]interface{}")
        value = value.get(part)
    return value, ""


def _mistyped(path: str, value: Any, wanted: str) -> str:
    shown = (
        str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
    )
    return f"{path} accessor error: {shown} is of the type {_GO.get(type(value), 'map')}, expected {wanted}"
