"""What makes a schema structural: every value has one type, and logic (anyOf, not, …) only restricts.

The real server tells these problems sorted; `structural_problems` does, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import forbidden, missing, wrong
from elasticjob.devcluster.server.regexps import go_problem
from elasticjob.devcluster.server.schemas import EMBEDDED, INT_OR_STRING, PRESERVE, Schema

_AT = {
    "root": "at the root",
    "item": "for specified array items",
    "field": "for specified object fields",
}
_JUNCTORS = ("anyOf", "allOf", "oneOf")
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]
# What a schema inside of anyOf, allOf, oneOf and not may not say, and how it is told to leave it.
_ONLY_OUTSIDE = {
    "type": "empty",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    PRESERVE: "false",
    EMBEDDED: "false",
    INT_OR_STRING: "false",
    "x-kubernetes-list-map-keys": "empty",
    "x-kubernetes-list-type": "undefined",
    "x-kubernetes-map-type": "undefined",
    "x-kubernetes-validations": "empty",
}
_NOT_OF_METADATA = frozenset({"type", "default", "externalDocs", "example"})


@dataclass(frozen=True)
class _Place:
    """A schema, where it stands, and whether that is the root, an array's item or a field."""

    schema: Schema
    path: str
    level: str

    @property
    def holds_metadata(self) -> bool:
        return self.level == "root" or bool(self.schema.get(EMBEDDED))

    def property(self, name: str) -> Schema | None:
        found: Schema | None = (self.schema.get("properties") or {}).get(name)
        return found


def structural_problems(schema: Schema, path: str) -> list[Cause]:
    """Everything that keeps a root schema from being structural, in the order in which it is told."""
    places = _places(_Place(schema, path, "root"))
    found = [cause for place in places for check in _CHECKS for cause in check(place)]
    found += _incomplete_logic(schema, schema, path, path)
    return sorted(found, key=lambda cause: f"{cause.field}: {cause.message}")


def _places(place: _Place) -> Iterator[_Place]:
    """The schemas of values, which define; those of logic only restrict."""
    yield place
    for name, child in (place.schema.get("properties") or {}).items():
        yield from _places(_Place(child, f"{place.path}.properties[{name}]", "field"))
    for key, level in (("items", "item"), ("additionalProperties", "field")):
        if isinstance(place.schema.get(key), dict):
            yield from _places(_Place(place.schema[key], f"{place.path}.{key}", level))


def _has_a_type(place: _Place) -> Iterator[Cause]:
    schema, where = place.schema, f"{place.path}.type"
    kind = schema.get("type") or ""
    if schema.get(EMBEDDED) and kind != "object":
        why = f"must be object if {EMBEDDED} is true"
        yield wrong(where, kind, why) if kind else missing(where, why)
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        yield missing(where, f"must not be empty {_AT[place.level]}")
    if place.level == "root" and kind not in ("", "object"):
        yield wrong(where, kind, "must be object at the root")


def _says_what_is_inside(place: _Place) -> Iterator[Cause]:
    schema = place.schema
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield missing(f"{place.path}.items", "must be specified")
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        why = f"must not be empty if {EMBEDDED} is true without {PRESERVE}"
        yield missing(f"{place.path}.properties", why)


def _is_no_map_where_it_may_not(place: _Place) -> Iterator[Cause]:
    if place.schema.get("additionalProperties") is None:
        return
    if place.level == "root":
        yield forbidden(f"{place.path}.additionalProperties", "must not be used at the root")
    if place.schema.get(EMBEDDED):
        yield forbidden(f"{place.path}.additionalProperties", f"must not be used if {EMBEDDED} is set")


def _is_one_thing(place: _Place) -> Iterator[Cause]:
    """An int-or-string is neither an object nor free of form."""
    for name in (PRESERVE, EMBEDDED):
        if place.schema.get(INT_OR_STRING) and place.schema.get(name):
            yield wrong(f"{place.path}.{name}", True, f"must be false if {INT_OR_STRING} is true")


def _leaves_metadata_alone(place: _Place) -> Iterator[Cause]:
    if not place.holds_metadata:
        return
    for name, kind in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        found = place.property(name)
        if found is not None and found.get("type") != kind:
            yield wrong(f"{place.path}.properties[{name}].type", found.get("type") or "", f"must be {kind}")
    metadata = place.property("metadata")
    if place.level == "root" and metadata is not None and _restricts_more_than_names(metadata):
        why = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        yield forbidden(f"{place.path}.properties[metadata]", why)


def _restricts_more_than_names(metadata: Schema) -> bool:
    names = set(metadata.get("properties") or ())
    said = {name for name, value in metadata.items() if is_said(value)} - _NOT_OF_METADATA
    return bool(said - {"properties"}) or not names <= {"name", "generateName"}


def is_said(value: Any) -> bool:
    """Whether a member counts as given: Go does not tell empty ones from absent ones; numbers it does."""
    return value is not None and value is not False and value not in ("", [], {})


def _logic_only_restricts(place: _Place) -> Iterator[Cause]:
    yield from _value_problems(place.schema, place.path)


def _value_problems(schema: Schema, path: str, *, skip_any: bool | None = None) -> Iterator[Cause]:
    """What is wrong with the restrictions of a schema; the two forms of int-or-string are let through."""
    outside = skip_any is None
    skip = _is_int_or_string(schema) if outside else bool(skip_any)
    for junctor in _JUNCTORS:
        for index, each in enumerate(schema.get(junctor) or ()):
            if junctor == "anyOf" and skip:
                continue
            first = outside and junctor == "allOf" and index == 0
            yield from _nested(each, f"{path}.{junctor}[{index}]", skip_any=first and _is_int_or_string(each))
    if isinstance(schema.get("not"), dict):
        yield from _nested(schema["not"], f"{path}.not")
    pattern = schema.get("pattern")
    if pattern and (problem := go_problem(pattern)):
        why = f"must be a valid regular expression, but isn't: error parsing regexp: {problem}"
        yield wrong(f"{path}.pattern", pattern, why)


def _is_int_or_string(schema: Schema) -> bool:
    return bool(schema.get("anyOf") == _INT_OR_STRING_FORM)


def _nested(schema: Schema, path: str, *, skip_any: bool = False) -> Iterator[Cause]:
    """What is wrong with a schema inside of logic."""
    yield from _value_problems(schema, path, skip_any=skip_any)
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        yield from _nested(child, f"{path}.properties[{name}]")
    for name, told in _ONLY_OUTSIDE.items():
        value = schema.get(name)
        if is_said(value) or (told == "undefined" and value is not None):
            yield forbidden(f"{path}.{name}", f"must be {told} to be structural")
    if schema.get("additionalProperties") not in (None, False):
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


_CHECKS: tuple[Callable[[_Place], Iterator[Cause]], ...] = (
    _has_a_type,
    _says_what_is_inside,
    _is_no_map_where_it_may_not,
    _is_one_thing,
    _leaves_metadata_alone,
    _logic_only_restricts,
)


def _incomplete_logic(said: Schema, defined: Schema | None, path: str, where: str) -> Iterator[Cause]:
    """Fields that the root's logic restricts and that are not defined outside of it.

    `path` leads along what is defined, `where` along the logic.
    """
    for inner, each in _logic(said, where):
        yield from _undefined(each, defined, path, inner)


def _logic(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    if isinstance(schema.get("not"), dict):
        yield f"{path}.not", schema["not"]
    for junctor in _JUNCTORS:
        for index, each in enumerate(schema.get(junctor) or ()):
            yield f"{path}.{junctor}[{index}]", each


def _undefined(said: Schema, defined: Schema | None, path: str, where: str) -> Iterator[Cause]:
    if defined is None:
        yield missing(path, f"because it is defined in {where}")
        return
    yield from _incomplete_logic(said, defined, path, where)
    if isinstance(said.get("items"), dict):
        yield from _undefined(said["items"], defined.get("items"), f"{path}.items", f"{where}.items")
    known = defined.get("properties") or {}
    for name, child in (said.get("properties") or {}).items():
        inner = f".properties[{name}]"
        yield from _undefined(child, known.get(name), path + inner, where + inner)
