"""Schemas as this server uses them: plain OpenAPI dictionaries with every `$ref` resolved.

Built-in types and custom resources then have one form, and no walker needs to know where a schema came from.
The result is a graph (JSONSchemaProps contains itself): walk it along a value, never by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal

from elasticjob.api import core

Schema = dict[str, Any]
Shape = Literal["scalar", "map", "atomic", "set", "list-map"]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "x-kubernetes-embedded-resource"
QUANTITY = "kubernetes-quantity"  # our own format: in a CRD, `quantity` has no effect
ANYTHING: Schema = {PRESERVE: True}

_CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_SPECIAL: dict[str, Schema] = {
    _QUANTITY: {INT_OR_STRING: True, "format": QUANTITY},
    _INT_OR_STRING: {INT_OR_STRING: True},
    _MICRO_TIME: {"type": "string", "format": "date-time-micro"},
    f"{_CRD}.JSON": ANYTHING,
}
# Keys of list-maps need their defaults before two lists can be merged.
_KEY_DEFAULTS = (
    ("io.k8s.api.core.v1.ContainerPort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.ServicePort", "protocol", "TCP"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name", ""),
)


@cache
def builtin_definitions() -> Mapping[str, Schema]:
    """Every published definition by its name, references resolved. Shared: do not modify."""
    source = core.definitions()
    resolved: dict[str, Schema] = {name: {} for name in source}
    for name, definition in source.items():
        resolved[name].update(_SPECIAL.get(name) or _resolve(definition, resolved))
    # JSONSchemaProps where a boolean or (never in a CRD) a list could stand as well
    properties = resolved[f"{_CRD}.JSONSchemaProps"]["properties"]
    either = {"properties": properties, "items": resolved[f"{_CRD}.JSONSchemaProps"]}
    resolved[f"{_CRD}.JSONSchemaPropsOrArray"] |= either
    resolved[f"{_CRD}.JSONSchemaPropsOrBool"] |= {"properties": properties}
    for name, field, default in _KEY_DEFAULTS:
        properties = resolved[name]["properties"]
        properties[field] = properties[field] | {"default": default}
    return resolved


def builtin_kind(api_version: str, kind: str) -> Schema | None:
    """The published schema of a kind, served or not; None for an unknown kind."""
    return _builtin_kinds().get((api_version, kind))


@cache
def _builtin_kinds() -> Mapping[tuple[str, str], Schema]:
    found = {}
    for schema in builtin_definitions().values():
        for each in schema.get("x-kubernetes-group-version-kind") or ():
            place = "/".join(filter(None, (each["group"], each["version"])))
            found[place, each["kind"]] = schema
    return found


def object_meta() -> Schema:
    return builtin_definitions()["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]


def _resolve(value: Any, resolved: Mapping[str, Schema]) -> Any:
    if isinstance(value, list):
        return [_resolve(item, resolved) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("$ref"), str):
        return resolved[value["$ref"].rsplit("/", 1)[-1]]
    answer = {key: _resolve(item, resolved) for key, item in value.items()}
    return answer | ANYTHING if _is_opaque(answer) else answer


def _is_opaque(schema: Schema) -> bool:
    """A published object without members (RawExtension, FieldsV1, JSON) may hold anything."""
    members = ("properties", "additionalProperties", "items", "$ref")
    return schema.get("type") == "object" and not any(key in schema for key in members)


def custom_schema(schema: Schema) -> Schema:
    """The root schema of a custom resource: its own, plus apiVersion, kind and metadata."""
    properties = dict(schema.get("properties") or {})
    own_metadata = properties.get("metadata") or {}
    metadata = object_meta() | {
        "properties": object_meta()["properties"] | (own_metadata.get("properties") or {})
    }
    properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata}
    return schema | {"properties": properties}


_EMBEDDED_FIELDS: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


def members(schema: Schema) -> Mapping[str, Schema]:
    """The declared properties, with those that an embedded resource has by itself."""
    declared: Mapping[str, Schema] = schema.get("properties") or {}
    if schema.get(EMBEDDED):
        return _EMBEDDED_FIELDS | {"metadata": object_meta()} | dict(declared)
    return declared


def member(schema: Schema, name: str) -> Schema | None:
    """The schema of one key of an object, None where the key is unknown."""
    found: Schema | None = (schema.get("properties") or {}).get(name)
    if found is None and schema.get(EMBEDDED):
        found = members(schema).get(name)
    if found is not None:
        return found
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return more
    return ANYTHING if more is True or schema.get(PRESERVE) or not schema else None


def items(schema: Schema) -> Schema:
    return schema.get("items") or ANYTHING


def shape(schema: Schema, value: Any) -> Shape:
    """How a value is owned and merged: whole, by key, by element."""
    if isinstance(value, dict):
        return "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else "map"
    if isinstance(value, list):
        return _LIST_SHAPES.get(schema.get("x-kubernetes-list-type", "atomic"), "atomic")
    return "scalar"


_LIST_SHAPES: dict[str, Shape] = {"map": "list-map", "set": "set", "atomic": "atomic"}


def key_fields(schema: Schema) -> list[str]:
    return schema.get("x-kubernetes-list-map-keys") or []


def item_key(schema: Schema, item: Any) -> dict[str, Any]:
    """The identifying fields of an element of a list-map, defaults filled in."""
    declared = members(items(schema))
    found = item if isinstance(item, dict) else {}
    answer: dict[str, Any] = {}
    for name in key_fields(schema):
        value = found.get(name)
        answer[name] = declared.get(name, {}).get("default") if value is None else value
    return answer


def walk(value: Any, schema: Schema, path: str = "") -> Iterator[tuple[str, Any, Schema]]:
    """Every value under (and with) this one beside its schema, parents first."""
    yield path, value, schema
    if isinstance(value, dict):
        for name, child in value.items():
            below = member(schema, name)
            if below is not None:
                yield from walk(child, below, join(schema, path, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from walk(child, items(schema), f"{path}[{index}]")


def join(schema: Schema, path: str, name: str) -> str:
    """Extend a field path: `.name` for declared fields, `[name]` for keys of a map."""
    if isinstance(schema.get("additionalProperties"), dict) and name not in (schema.get("properties") or {}):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name
