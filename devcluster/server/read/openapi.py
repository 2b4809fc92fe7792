"""OpenAPI v3 documents, one per group version: `kubectl explain` and apply's validation read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.api import core
from elasticjob.devcluster.server.model.registry import Registry, Resource
from elasticjob.devcluster.server.model.store import Manifest, encode
from elasticjob.devcluster.server.read.discovery import subresources, versions

_SCHEMAS = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_JSON = "application/json"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_OBJECT_FIELDS = {
    "apiVersion": "The versioned schema of this representation of an object.",
    "kind": "The REST resource this object represents, in CamelCase.",
}


class Documents:
    """Documents by path (`api/v1`, `apis/GROUP/VERSION`), kept until the registry changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._made: dict[str, tuple[int, bytes, str]] = {}

    def index(self) -> Manifest:
        """Path → address with the hash of the document's content."""
        paths = {}
        for group, found in versions(self._registry).items():
            for version in found:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._document(path)[1]}"}
        return {"paths": paths}

    def document(self, path: str) -> bytes | None:
        """The document of one group version; None if it does not exist."""
        group, _, version = (
            path.removeprefix("apis/").rpartition("/") if path.startswith("apis/") else ("", "", "v1")
        )
        known = versions(self._registry)
        return self._document(path)[0] if version in known.get(group, ()) else None

    def _document(self, path: str) -> tuple[bytes, str]:
        made = self._made.get(path)
        if made is None or made[0] != self._registry.changes:
            group, _, version = (
                path.removeprefix("apis/").rpartition("/") if path.startswith("apis/") else ("", "", "v1")
            )
            raw = encode(_make(self._registry.within(group, version)))
            made = (self._registry.changes, raw, hashlib.sha256(raw).hexdigest().upper())
            self._made[path] = made
        return made[1], made[2]


def _make(resources: list[Resource]) -> Manifest:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in resources:
        name = _schema_name(resource)
        if resource.custom:
            schemas[name] = _custom(resource)
            _close(schemas, _META)
        else:
            _close(schemas, name)
        for path, subresource in _paths(resource):
            paths[path] = _operations(resource, name, path, subresource)
    info = {"title": "Kubernetes", "version": f"v{core.document()['version'].removeprefix('v')}"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _schema_name(resource: Resource) -> str:
    if resource.custom:
        reverse = ".".join(reversed(resource.group.split(".")))
        return f"{reverse}.{resource.version}.{resource.kind}"
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return next(
        name
        for name, schema in core.definitions().items()
        if wanted in (schema.get("x-kubernetes-group-version-kind") or ())
    )


def _close(schemas: dict[str, Any], name: str) -> None:
    """Add a published definition and all that it refers to."""
    if name in schemas:
        return
    schemas[name] = _translate(core.definitions()[name])
    for each in _references(core.definitions()[name]):
        _close(schemas, each)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"].rsplit("/", 1)[-1]
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


def _translate(value: Any) -> Any:
    """Swagger 2 → OpenAPI 3: only references are spelled differently."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            return {"$ref": _SCHEMAS + value["$ref"].rsplit("/", 1)[-1]}
        return {key: _translate(child) for key, child in value.items()}
    return [_translate(child) for child in value] if isinstance(value, list) else value


def _custom(resource: Resource) -> Mapping[str, Any]:
    own = {
        name: child
        for name, child in resource.schema["properties"].items()
        if name not in (*_OBJECT_FIELDS, "metadata")
    }
    common = {name: {"type": "string", "description": text} for name, text in _OBJECT_FIELDS.items()}
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    metadata = {"description": "Standard object's metadata.", "allOf": [{"$ref": _SCHEMAS + _META}]}
    return resource.schema | {
        "properties": common | {"metadata": metadata} | own,
        "x-kubernetes-group-version-kind": [kind],
    }


def _paths(resource: Resource) -> Iterator[tuple[str, str]]:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    yield f"{root}{scope}/{resource.plural}", ""
    yield f"{root}{scope}/{resource.plural}/{{name}}", ""
    for name in subresources(resource):
        yield f"{root}{scope}/{resource.plural}/{{name}}/{name}", name


def _operations(resource: Resource, schema: str, path: str, subresource: str) -> Manifest:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    content = {"schema": {"$ref": _SCHEMAS + schema}}
    response = {"responses": {"200": {"description": "OK", "content": {_JSON: content}}}}

    def operation(action: str, body: tuple[str, ...] = ()) -> Manifest:
        base = {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind, **response}
        if not body:
            return base
        request = {"content": dict.fromkeys(body, content), "required": True}
        return base | {"parameters": _WRITE_PARAMETERS, "requestBody": request}

    if subresource:
        return {"get": operation("get")}
    if not path.endswith("{name}"):
        return {
            "get": operation("list"),
            "post": operation("post", (_JSON,)),
            "delete": operation("deletecollection"),
        }
    return {
        "get": operation("get"),
        "put": operation("put", (_JSON,)),
        "patch": operation("patch", _PATCHES[: 3 if resource.custom else 4]),
        "delete": operation("delete"),
    }


_WRITE_PARAMETERS = [
    {
        "name": name,
        "in": "query",
        "schema": {"type": "boolean" if name == "force" else "string", "uniqueItems": True},
    }
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]
