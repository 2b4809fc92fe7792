"""Which schemas a CustomResourceDefinition may carry: "structural" ones; one small check per rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import missing, unsupported, wrong
from elasticjob.devcluster.server.pruning import prune
from elasticjob.devcluster.server.schemas import EMBEDDED, INT_OR_STRING, PRESERVE, Schema
from elasticjob.devcluster.server.validation import validate
from elasticjob.kube.re2 import re2_problem

Check = Callable[[Schema, str], Iterator[Cause]]

_TYPES = ["array", "boolean", "integer", "number", "object", "string"]
_LOGIC = ("allOf", "anyOf", "oneOf")
# What a schema inside of allOf/anyOf/oneOf/not may not say: it only restricts, it does not define.
_ONLY_OUTSIDE = (
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
)
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]


def structural_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Everything that keeps a root schema from being accepted."""
    if schema.get("type") != "object":
        yield wrong(f"{path}.type", schema.get("type", ""), 'must be "object" at the root')
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    for name in (metadata.get("properties") or {}).keys() - {"name", "generateName"}:
        yield Cause(
            f"{path}.properties[metadata].properties[{name}]",
            "Forbidden: must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
            "FieldValueForbidden",
        )
    yield from _problems(schema, path)


def _problems(schema: Schema, path: str) -> Iterator[Cause]:
    for check in _CHECKS:
        yield from check(schema, path)
    for where, child in _children(schema, path):
        yield from _problems(child, where)


def _children(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for name, child in (schema.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", child
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield f"{path}.{key}", schema[key]


def _forbidden(path: str, why: str) -> Cause:
    return Cause(path, f"Forbidden: {why}", "FieldValueForbidden")


def _no_reference(schema: Schema, path: str) -> Iterator[Cause]:
    if "$ref" in schema:
        yield _forbidden(f"{path}.$ref", "$ref is not supported")


def _has_type(schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("type")
    if "$ref" in schema:
        return
    if kind is None and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield missing(
            f"{path}.type",
            "must not be empty for specified object fields"
            if ".properties" in path
            else "must not be empty for specified array items"
            if path.endswith(".items")
            else "must not be empty at the root",
        )
    if kind is not None and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)


def _members_fit(schema: Schema, path: str) -> Iterator[Cause]:
    more = schema.get("additionalProperties")
    if schema.get("properties") and "additionalProperties" in schema:
        yield _forbidden(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    elif more is False:
        yield _forbidden(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield missing(f"{path}.items", "must be specified")


def _is_supported(schema: Schema, path: str) -> Iterator[Cause]:
    for name in ("patternProperties", "additionalItems", "definitions", "dependencies"):
        if schema.get(name):
            yield _forbidden(f"{path}.{name}", f"{name} is not supported")


def _not_quadratic(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get("uniqueItems"):
        yield _forbidden(
            f"{path}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )


def _pattern_compiles(schema: Schema, path: str) -> Iterator[Cause]:
    pattern = schema.get("pattern")
    if pattern is None:
        return
    if problem := re2_problem(pattern):
        why = f"must be a valid regular expression, but isn't: error parsing regexp: {problem}"
        yield wrong(f"{path}.pattern", pattern, why)


def _embedded_says_more(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get(EMBEDDED) and not schema.get("properties") and not schema.get(PRESERVE):
        yield missing(
            f"{path}.properties",
            f"must not be empty if {EMBEDDED} is true without {PRESERVE}",
        )


def _list_type_fits(schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind is None:
        return
    below = schema.get("items") or {}
    if schema.get("type") != "array":
        yield wrong(
            f"{path}.type", schema.get("type", ""), "must be array if x-kubernetes-list-type is specified"
        )
    elif kind == "map":
        yield from _list_map_fits(schema, below, path)
    elif (
        kind == "set"
        and below.get("type") in ("object", "array")
        and "atomic" not in (below.get("x-kubernetes-map-type"), below.get("x-kubernetes-list-type"))
    ):
        yield wrong(
            f"{path}.items.x-kubernetes-map-type",
            "",
            "must be atomic as item of a list with x-kubernetes-list-type=set",
        )
    elif kind not in ("atomic", "set"):
        yield unsupported(f"{path}.x-kubernetes-list-type", kind, ["atomic", "map", "set"])


def _list_map_fits(schema: Schema, below: Schema, path: str) -> Iterator[Cause]:
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if not keys:
        yield missing(
            f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map"
        )
    if below.get("type") != "object":
        yield wrong(
            f"{path}.items.type",
            below.get("type", ""),
            "must be object if parent array's x-kubernetes-list-type is map",
        )
    if len(set(keys)) < len(keys):
        yield wrong(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")
    for key in keys:
        declared = (below.get("properties") or {}).get(key)
        if declared is None:
            yield wrong(
                f"{path}.x-kubernetes-list-map-keys", key, "entries must all be names of item properties"
            )
        elif declared.get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield wrong(f"{path}.items.properties[{key}].type", below.get("type", ""), why)
        elif "default" not in declared and key not in (below.get("required") or ()):
            yield missing(
                f"{path}.items.properties[{key}].default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
                "required property",
            )


def _logic_only_restricts(schema: Schema, path: str) -> Iterator[Cause]:
    for key in _LOGIC:
        if key == "anyOf" and schema.get(INT_OR_STRING) and schema.get(key) == _INT_OR_STRING_FORM:
            continue
        for index, child in enumerate(schema.get(key) or ()):
            yield from _restricts(child, f"{path}.{key}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _restricts(schema["not"], f"{path}.not")


def _restricts(schema: Schema, path: str) -> Iterator[Cause]:
    for name in _ONLY_OUTSIDE:
        if schema.get(name):
            yield _forbidden(f"{path}.{name}", "must be empty to be structural")
    for where, child in _children(schema, path):
        yield from _restricts(child, where)
    yield from _logic_only_restricts(schema, path)


def _default_fits(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get("default") is not None and not any(_no_reference(schema, path)):
        for cause in validate(schema["default"], schema, ""):
            yield wrong(f"{path}.default{cause.field}", _shown(schema["default"]), cause.message)
        if prune(deepcopy(schema["default"]), schema):
            yield wrong(f"{path}.default", schema["default"], "must not have unknown fields")


def _shown(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else type(value).__name__


_CHECKS: tuple[Check, ...] = (
    _no_reference,
    _is_supported,
    _has_type,
    _members_fit,
    _not_quadratic,
    _pattern_compiles,
    _embedded_says_more,
    _list_type_fits,
    _logic_only_restricts,
    _default_fits,
)
