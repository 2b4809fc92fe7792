"""Structural schemas: a type for each value, and no types or defaults inside anyOf, allOf, oneOf, not.

This covers what breaks serving, merging or defaulting here; the real server refuses more.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import forbidden, missing, unsupported, wrong
from elasticjob.devcluster.server.model.schemas import EMBEDDED, INT_OR_STRING, PRESERVE, Schema, members
from elasticjob.devcluster.server.schema.pruning import prune
from elasticjob.devcluster.server.schema.validation import validate
from elasticjob.kube.crd.patterns import pattern_problem

_TYPES = ["array", "boolean", "integer", "number", "object", "string"]
_NEVER = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties", "uniqueItems")
_LIST_TYPES, _MAP_TYPES = ["atomic", "set", "map"], ["atomic", "granular"]
# these define a value, so they may not stand inside of anyOf, allOf, oneOf and not
_DEFINING = ("additionalProperties", "default", "nullable", "title", "type", PRESERVE, EMBEDDED)
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]


def structural_problems(root: Schema, path: str) -> Iterator[Cause]:
    """Everything that is wrong with the schema of a version."""
    if root.get("type") not in (None, "object"):
        yield wrong(f"{path}.type", root["type"], "must be object at the root")
    metadata = (root.get("properties") or {}).get("metadata") or {}
    if not set(metadata.get("properties") or ()) <= {"name", "generateName"}:
        yield forbidden(f"{path}.properties[metadata]", "may restrict name and generateName only")
    for where, schema in _places(root, path):
        yield from _type_problems(schema, where)
        yield from _list_problems(schema, where)
        yield from _logic_problems(schema, where)
        yield from (forbidden(f"{where}.{name}", "must not be set") for name in _NEVER if schema.get(name))
        if schema.get("default") is not None:
            yield from _default_problems(schema, f"{where}.default")


def _places(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """The schemas of values, parents first."""
    yield path, schema
    for name, child in (schema.get("properties") or {}).items():
        yield from _places(child, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _places(schema[name], f"{path}.{name}")


def _type_problems(schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("type")
    if not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield missing(f"{path}.type", "must not be empty")
    elif kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    if kind == "array" and not isinstance(schema.get("items"), dict):
        yield missing(f"{path}.items", "must be specified")
    if schema.get(EMBEDDED) and kind != "object":
        yield wrong(f"{path}.type", kind or "", f"must be object if {EMBEDDED} is true")
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        why = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", why)
    if schema.get("pattern") and (problem := pattern_problem(schema["pattern"])):
        yield wrong(f"{path}.pattern", schema["pattern"], f"must be a valid regular expression: {problem}")


def _list_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """List and map types by which objects are merged; the keys of a list-map must always have a value."""
    keys, item = schema.get("x-kubernetes-list-map-keys") or (), schema.get("items") or {}
    kind = schema.get("x-kubernetes-list-type")
    for name, known in (("x-kubernetes-list-type", _LIST_TYPES), ("x-kubernetes-map-type", _MAP_TYPES)):
        if schema.get(name) is not None and schema[name] not in known:
            yield unsupported(f"{path}.{name}", schema[name], known)
    if kind == "map" and not keys:
        yield missing(f"{path}.x-kubernetes-list-map-keys", "needed by x-kubernetes-list-type map")
    elif keys and kind != "map":
        yield wrong(f"{path}.x-kubernetes-list-map-keys", list(keys), "goes with x-kubernetes-list-type map")
    if kind == "set" and item.get("type") == "object" and item.get("x-kubernetes-map-type") != "atomic":
        yield wrong(f"{path}.items.x-kubernetes-map-type", "", "must be atomic for objects of a set")
    for key in keys if kind == "map" else ():
        found = members(item).get(key)
        if found is None:
            yield wrong(f"{path}.x-kubernetes-list-map-keys", list(keys), "must name properties of the items")
        elif key not in (item.get("required") or ()) and "default" not in found:
            yield missing(f"{path}.items.properties[{key}].default", "a key is required or has a default")


def _logic_problems(schema: Schema, path: str, *, inside: bool = False) -> Iterator[Cause]:
    if inside:
        said = [name for name in _DEFINING if schema.get(name)]
        yield from (forbidden(f"{path}.{name}", "must not be set inside of logic") for name in said)
        for name, child in (schema.get("properties") or {}).items():
            yield from _logic_problems(child, f"{path}.properties[{name}]", inside=True)
        if isinstance(schema.get("items"), dict):
            yield from _logic_problems(schema["items"], f"{path}.items", inside=True)
    for name in ("allOf", "anyOf", "oneOf"):
        if schema.get(name) != _INT_OR_STRING_FORM:
            for index, child in enumerate(schema.get(name) or ()):
                yield from _logic_problems(child, f"{path}.{name}[{index}]", inside=True)
    if isinstance(schema.get("not"), dict):
        yield from _logic_problems(schema["not"], f"{path}.not", inside=True)


def _default_problems(schema: Schema, path: str) -> Iterator[Cause]:
    if prune(deepcopy(schema["default"]), schema):
        yield wrong(path, schema["default"], "must not have unknown fields")
    yield from (
        Cause(f"{path}.{each.field}" if each.field else path, each.message, each.reason)
        for each in validate(schema["default"], schema)
    )
