"""What keeps a configuration from being applied: fields without a schema, lists that cannot be merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from elasticjob.devcluster.server.schemas import Schema, item_key, items, key_fields, member, members, shape

_text = msgspec.json.Encoder(order="sorted").encode


def untypable(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Every reason, with its place in the words of the real server."""
    if isinstance(value, dict):
        for name, child in value.items():
            below = member(schema, name)
            if below is None:
                yield f"{path}.{name}: field not declared in schema"
            elif name in members(schema) or below is schema.get("additionalProperties"):
                yield from untypable(child, below, f"{path}.{name}")
    elif isinstance(value, list):
        yield from _untypable_list(value, schema, path)


def _untypable_list(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    kind, seen = shape(schema, value), set[bytes]()
    for index, item in enumerate(value):
        place = _place(item, index, schema)
        if kind == "list-map" and _lacks_key(item, schema):
            named = ", ".join(f'"{name}"' for name in key_fields(schema))
            why = f"associative list with keys has an element that omits all key fields [{named}]"
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
