"""Conversion of objects for rules: timestamps, bytes and floats by schema, names escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from elasticjob.devcluster.server.model.schemas import INT_OR_STRING, Schema, item_key, items
from elasticjob.kube.crd.schemas import LIST_TYPE, escape

Reader = Callable[[Any], Any]


def reader(schema: Schema) -> Reader | None:
    """Return the converter of a schema's values; None if they need no conversion."""
    if schema.get(INT_OR_STRING):
        return None
    match schema.get("type"):
        case "string":
            read = _FORMATS.get(schema.get("format", ""))
            return read and _where_possible(str, read)
        case "number":
            return _where_possible(int, float)
        case "array":
            each = reader(schema.get("items") or {})
            return each and (lambda value: [*map(each, value)] if isinstance(value, list) else value)
        case "object":
            return _object(schema)
    return None


def _where_possible(kind: type, read: Reader) -> Reader:
    """A converter that returns values of another type or format unchanged."""

    def known(value: Any) -> Any:
        try:
            return read(value) if isinstance(value, kind) and not isinstance(value, bool) else value
        except (ValueError, OverflowError):
            return value

    return known


def _timestamp(text: str) -> Timestamp:
    found = Timestamp()
    found.FromJsonString(text)
    return found


_UNITS = {
    "w": 7 * 86_400 * 10**9,
    "d": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "ns": 1,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ms|us|µs|ns|[wdhms])")


def _duration(text: str) -> Duration:
    """Read `1h30m`, `-5s`, `2d`. Raises ValueError."""
    number = text.replace(" ", "").lstrip("+-")
    if number != "0" and (not number or _PART.sub("", number)):
        raise ValueError(f"{text!r} is not a duration")
    nanoseconds = sum(round(float(count) * _UNITS[unit]) for count, unit in _PART.findall(number))
    found = Duration()
    found.FromNanoseconds(-nanoseconds if text.startswith("-") else nanoseconds)
    return found


_FORMATS: Mapping[str, Reader] = {
    "byte": base64.b64decode,
    "date": lambda text: _timestamp(f"{text}T00:00:00Z"),
    "date-time": _timestamp,
    "duration": _duration,
}


def _same(value: Any) -> Any:
    return value


def _object(schema: Schema) -> Reader | None:
    properties = schema.get("properties") or {}
    readers = {name: read for name, child in properties.items() if (read := reader(child)) is not None}
    names = {name: escape(name) for name in properties if escape(name) != name}
    more = schema.get("additionalProperties")
    other = (reader(more) if isinstance(more, dict) else None) or _same
    if not readers and not names and other is _same:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {names.get(name, name): readers.get(name, other)(each) for name, each in value.items()}

    return convert


def align(old: Any, new: Any, schema: Schema) -> Any:
    """The old value with its sets and keyed lists in the order of the new one: their order has no meaning."""
    if isinstance(old, dict) and isinstance(new, dict):
        fields = schema.get("properties") or {}
        return old | {
            name: align(old[name], new[name], fields[name])
            for name in old.keys() & new.keys() & fields.keys()
        }
    if not isinstance(old, list) or not isinstance(new, list) or schema.get(LIST_TYPE) not in ("set", "map"):
        return old
    places = {identity(schema, each): place for place, each in enumerate(new)}
    ordered = sorted(old, key=lambda each: places.get(identity(schema, each), len(new)))
    return [_beside(each, places.get(identity(schema, each)), new, schema) for each in ordered]


def _beside(old: Any, place: int | None, new: list[Any], schema: Schema) -> Any:
    return old if place is None else align(old, new[place], items(schema))


def identity(schema: Schema, item: Any) -> bytes:
    """The identity of an item in a set or a keyed list, hashable."""
    keys = item_key(schema, item) if schema.get(LIST_TYPE) == "map" else item
    return msgspec.json.encode(keys, order="sorted")
