"""Values of objects as rules see them: moments, spans, bytes, numbers with a point, lists without order."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from elasticjob.kube.cel.moments import date, long_duration, timestamp
from elasticjob.kube.cel.values import Unordered
from elasticjob.kube.crd.schemas import INT_OR_STRING, LIST_KEYS, LIST_TYPE

Reader = Callable[[Any], Any]


def reader(node: Mapping[str, Any]) -> Reader | None:
    """Return what reads a schema's values for rules; None where they are what they are."""
    if node.get(INT_OR_STRING):
        return None
    match node.get("type"):
        case "string":
            read = _FORMATS.get(node.get("format", ""))
            return _if_of(str, read) if read else None
        case "number":
            return _if_of(int, float)
        case "array":
            return _items(reader(node.get("items") or {}), node)
        case "object":
            return _object(node)
    return None


def _if_of(kind: type, read: Reader) -> Reader:
    """A reader that leaves alone what is no value of the schema, or says nothing in its format."""

    def known(value: Any) -> Any:
        try:
            return read(value) if isinstance(value, kind) and not isinstance(value, bool) else value
        except (ValueError, OverflowError):
            return value

    return known


_FORMATS: Final[Mapping[str, Reader]] = {
    "byte": base64.b64decode,
    "date": date,
    "date-time": timestamp,
    "duration": long_duration,
}


def _items(read: Reader | None, node: Mapping[str, Any]) -> Reader | None:
    """The elements as rules see them; where their order says nothing, the list knows that."""
    if node.get(LIST_TYPE) not in ("set", "map"):
        return read and (lambda value: [read(each) for each in value] if isinstance(value, list) else value)
    keys, seen = tuple(node.get(LIST_KEYS) or ()), read or _same
    return lambda value: Unordered(map(seen, value), keys) if isinstance(value, list) else value


def _same(value: Any) -> Any:
    return value


def _object(node: Mapping[str, Any]) -> Reader | None:
    children = (node.get("properties") or {}).items()
    fields = {name: read for name, child in children if (read := reader(child)) is not None}
    more = node.get("additionalProperties")
    other = reader(more) if isinstance(more, Mapping) else None
    if not fields and other is None:
        return None

    def object_of(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return value | {name: read(value[name]) for name, read in fields.items() if name in value}

    return object_of if other is None else _map(fields, other)


def _map(fields: Mapping[str, Reader], other: Reader) -> Reader:
    """A reader of objects all of whose values are read."""

    def map_of(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: fields.get(name, other)(each) for name, each in value.items()}

    return map_of
