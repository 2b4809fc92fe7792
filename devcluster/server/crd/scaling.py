"""The Scale of an object, by the paths that its kind declares, and an object of another size."""

from __future__ import annotations

import copy
from typing import Any

from elasticjob.devcluster.server.model.errors import internal
from elasticjob.devcluster.server.model.jsonpath import compile_path
from elasticjob.devcluster.server.model.registry import Resource, Scale
from elasticjob.devcluster.server.model.store import Manifest


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


def with_size(old: Manifest, path: str, replicas: int) -> Manifest:
    """The object with a number at a dotted path; parents that are missing are made."""
    answer = copy.deepcopy(old)
    *parents, last = [
        part.strip("'\"") for part in path.lstrip(".").replace("['", ".").replace("']", "").split(".")
    ]
    place = answer
    for part in parents:
        place = place.setdefault(part, {})
    place[last] = replicas
    return answer


def _selector_text(selector: Any) -> str:
    if isinstance(selector, dict):
        return ",".join(f"{name}={value}" for name, value in (selector.get("matchLabels") or {}).items())
    return str(selector)


def _first(body: Manifest, path: str) -> Any:
    return next(iter(compile_path(path)(body)), None)
