"""What a definition's schema may say beside being structural: keywords, list and map types, defaults' places.

The real server tells the problems of a schema after those of the schemas inside of it, keywords first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import forbidden, missing, unsupported, wrong
from elasticjob.devcluster.server.schemas import EMBEDDED, PRESERVE, Schema

Check = Callable[[Schema, str], Iterator[Cause]]
_LIST_TYPE, _MAP_TYPE, _KEYS = (
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-list-map-keys",
)
_TYPES = ["array", "boolean", "integer", "number", "object", "string"]
_UNKNOWN_WORDS = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_OF_METADATA = ("metadata", "kind", "apiVersion")


@dataclass(frozen=True)
class _Around:
    """What the schemas around one mean for it: why it may have no default, whether it is of metadata."""

    no_default: str = ""
    in_metadata: bool = False


def keyword_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Everything that is wrong with a root schema's words, in the order in which it is told."""
    yield from _problems(schema, path, _Around(), root=True)


def unreadable(schema: Schema) -> str:
    """The first word of a schema, or of one inside of it, for which it cannot be a structural one."""
    for word in _UNREADABLE:
        if schema.get(word) or (word == "additionalItems" and schema.get(word) is not None):
            return word.removeprefix("$") if word == "$schema" else word
    if isinstance(schema.get("items"), list):
        return "items"
    if schema.get(PRESERVE) is False:
        return PRESERVE
    return next(filter(None, map(unreadable, inner_schemas(schema))), "")


_UNREADABLE = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")


def inner_schemas(schema: Schema) -> Iterator[Schema]:
    """The schemas right inside of one, those of logic included."""
    return (child for _, child, _ in _children(schema, "", _Around(), root=False))


def _problems(schema: Schema, path: str, around: _Around, *, root: bool = False) -> Iterator[Cause]:
    yield from _word_problems(schema, path, around)
    for where, child, near in _children(schema, path, around, root):
        yield from _problems(child, where, near)
    for check in _CHECKS:
        yield from check(schema, path)


def _word_problems(schema: Schema, path: str, around: _Around) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    if around.no_default and schema.get("default") is not None:
        yield forbidden(f"{path}.default", f"must not be set {around.no_default}")
    for word in _UNKNOWN_WORDS:
        if word in schema and (schema[word] or word in ("additionalItems", "$ref", "dependencies")):
            yield forbidden(f"{path}.{word}", f"{word} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if around.in_metadata and schema.get(EMBEDDED):
        yield forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", why)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        why = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", why)


def _children(
    schema: Schema, path: str, around: _Around, root: bool
) -> Iterator[tuple[str, Schema, _Around]]:
    """The schemas inside of one, those of logic included."""
    if isinstance(schema.get("additionalProperties"), dict):
        why = "inside additionalProperties applying to object metadata"
        near = replace(around, no_default=why) if around.in_metadata else around
        yield f"{path}.additionalProperties", schema["additionalProperties"], near
    for name, child in (schema.get("properties") or {}).items():
        yield f"{path}.properties[{name}]", child, _near(schema, name, around, root)
    if isinstance(schema.get("not"), dict):
        yield f"{path}.not", schema["not"], around
    for junctor in ("allOf", "oneOf", "anyOf"):
        for index, child in enumerate(schema.get(junctor) or ()):
            yield f"{path}.{junctor}[{index}]", child, around
    if isinstance(schema.get("items"), dict):
        yield f"{path}.items", schema["items"], around


def _near(schema: Schema, name: str, around: _Around, root: bool) -> _Around:
    if name not in _OF_METADATA or not (root or schema.get(EMBEDDED)):
        return around
    return _Around(f"in top-level {name}" if root else around.no_default, in_metadata=True)


def _preserves_or_says_nothing(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get(PRESERVE) is False:
        yield wrong(f"{path}.{PRESERVE}", False, "must be true or undefined")


def _has_type(word: str, kind: str) -> Check:
    """A check that what has this word is of this type."""

    def check(schema: Schema, path: str) -> Iterator[Cause]:
        found, why = schema.get("type") or "", f"must be {kind} if {word} is specified"
        if schema.get(word) is not None and found != kind:
            yield wrong(f"{path}.type", found, why) if found else missing(f"{path}.type", why)

    return check


def _is_one_of(word: str, known: list[str]) -> Check:
    """A check that a word has one of the values that there are."""

    def check(schema: Schema, path: str) -> Iterator[Cause]:
        found = schema.get(word)
        if found is not None and found not in known:
            yield unsupported(f"{path}.{word}", found, known)

    return check


def _items_of_sets_are_atomic(schema: Schema, path: str) -> Iterator[Cause]:
    below = schema.get("items")
    if schema.get(_LIST_TYPE) != "set" or schema.get("type") != "array" or not isinstance(below, dict):
        return
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    shown = below.get(_LIST_TYPE)
    if below.get("type") == "array" and shown not in (None, "atomic"):
        yield wrong(f"{path}.items.{_LIST_TYPE}", shown, why)
    if below.get("type") == "object" and below.get(_MAP_TYPE) != "atomic":
        yield wrong(f"{path}.items.{_MAP_TYPE}", shown, why)


def _keys_are_of_maps(schema: Schema, path: str) -> Iterator[Cause]:
    kind, why = schema.get(_LIST_TYPE), f"must be map if {_KEYS} is non-empty"
    if schema.get(_KEYS) and kind is None:
        yield missing(f"{path}.{_LIST_TYPE}", why)
    elif schema.get(_KEYS) and kind != "map":
        yield wrong(f"{path}.{_LIST_TYPE}", kind, why)


def _list_maps_have_keys(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get(_LIST_TYPE) != "map":
        return
    below = schema.get("items")
    if not schema.get(_KEYS):
        yield missing(f"{path}.{_KEYS}", f"must not be empty if {_LIST_TYPE} is map")
    if below is None:
        yield missing(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
    elif isinstance(below, dict) and below.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield wrong(f"{path}.items.type", below.get("type") or "", why)
    elif isinstance(below, dict):
        yield from _key_problems(schema[_KEYS] if schema.get(_KEYS) else [], below, path)


def _key_problems(keys: list[str], below: Schema, path: str) -> Iterator[Cause]:
    for index, key in enumerate(keys):
        declared = (below.get("properties") or {}).get(key)
        if declared is None:
            yield wrong(f"{path}.{_KEYS}", keys, "entries must all be names of item properties")
        elif declared.get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield wrong(f"{path}.items.properties[{key}].type", below["type"], why)
        if key in keys[:index]:
            yield wrong(f"{path}.{_KEYS}", keys, "must not contain duplicate entries")


def _elements_are_never_null(schema: Schema, path: str) -> Iterator[Cause]:
    kind, below = schema.get(_LIST_TYPE), schema.get("items")
    if kind not in ("set", "map") or not isinstance(below, dict):
        return
    if below.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {kind}")
    for key in (schema.get(_KEYS) or ()) if kind == "map" else ():
        declared = (below.get("properties") or {}).get(key)
        if declared is not None:
            yield from _key_is_there(key, declared, below, f"{path}.items.properties[{key}]")


def _key_is_there(key: str, declared: Schema, below: Schema, path: str) -> Iterator[Cause]:
    why = "this property is in x-kubernetes-list-map-keys, so it"
    if key not in (below.get("required") or ()) and declared.get("default") is None:
        yield missing(f"{path}.default", f"{why} must have a default or be a required property")
    if declared.get("nullable"):
        yield forbidden(f"{path}.nullable", f"{why} cannot be nullable")


_CHECKS: tuple[Check, ...] = (
    _preserves_or_says_nothing,
    _has_type(_MAP_TYPE, "object"),
    _is_one_of(_MAP_TYPE, ["atomic", "granular"]),
    _has_type(_LIST_TYPE, "array"),
    _items_of_sets_are_atomic,
    _is_one_of(_LIST_TYPE, ["atomic", "set", "map"]),
    _keys_are_of_maps,
    _list_maps_have_keys,
    _elements_are_never_null,
)
