"""Checks that a configuration can be applied: fields without a schema, lists that cannot be merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from elasticjob.devcluster.server.model.schemas import (
    ANYTHING,
    Schema,
    item_key,
    items,
    key_fields,
    member,
    members,
    shape,
)

_text = msgspec.json.Encoder(order="sorted").encode


def untypable(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Every reason, with its place in the words of the real server."""
    if problem := _type_errors(value, schema):
        yield f"{path}: {problem}"
    elif isinstance(value, dict):
        for name, child in value.items():
            below = member(schema, name)
            if below is None:
                yield f"{path}.{name}: field not declared in schema"
            elif name in members(schema) or below is schema.get("additionalProperties"):
                yield from untypable(child, below, f"{path}.{name}")
    elif isinstance(value, list):
        yield from _untypable_list(value, schema, path)


def _type_errors(value: Any, schema: Schema) -> str:
    """How a value is of another type than the schema's; nulls are of every type."""
    kind = schema.get("type")
    if value is None or kind is None or _TYPES[kind](value):
        return ""
    if kind in ("integer", "number"):
        return f"expected numeric (int or float), got {_GO.get(type(value), 'map[string]interface {}')}"
    if kind == "string":
        return f"expected string, got &value.valueUnstructured{{Value:{_go_value(value)}}}"
    noun = {"object": "map", "array": "list"}.get(kind, "boolean")
    return f"expected {noun}, got &{{{value}}}"


def without_nulls(value: Any, schema: Schema) -> Any:
    """Replace null strings of a built-in type by empty ones, as an apply does."""
    if isinstance(value, dict) and schema is not ANYTHING:
        return {
            name: ""
            if child is None and _is_text_map(schema)
            else without_nulls(child, member(schema, name) or ANYTHING)
            for name, child in value.items()
        }
    return value


def _is_text_map(schema: Schema) -> bool:
    more = schema.get("additionalProperties")
    return isinstance(more, dict) and more.get("type") == "string" and "format" not in more


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": _is_number,
    "number": _is_number,
}
_GO: dict[type, str] = {str: "string", bool: "bool", list: "[]interface {}"}


def _go_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _untypable_list(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    kind, seen = shape(schema, value), set[bytes]()
    for index, item in enumerate(value):
        place = _place(item, index, schema)
        if kind == "list-map" and _lacks_key(item, schema):
            named = ", ".join(f'"{name}"' for name in key_fields(schema))
            why = (
                f"associative list with keys has an element that omits all key fields [{named}] "
                "(and doesn't have default values for any key fields)"
            )
            yield f"{path}: element {index}: {why}"
            continue
        identity = _text(item_key(schema, item) if kind == "list-map" else item)
        if kind in ("list-map", "set") and identity in seen:
            yield f"{path}: duplicate entries for key {place}"
        seen.add(identity)
        yield from untypable(item, items(schema), f"{path}{place}")


def _lacks_key(item: Any, schema: Schema) -> bool:
    return all(value is None for value in item_key(schema, item).values())


def _place(item: Any, index: int, schema: Schema) -> str:
    """How an element is named: by its keys, by its value in a set, else by its number."""
    kind = shape(schema, [item])
    if kind == "list-map":
        keys = item_key(schema, item).items()
        return "[" + ",".join(f"{name}={_text(value).decode()}" for name, value in keys) + "]"
    return f"[={_text(item).decode()}]" if kind == "set" else f"[{index}]"
