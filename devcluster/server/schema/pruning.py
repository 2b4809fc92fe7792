"""Unknown fields: found, and removed from the object in place."""

from __future__ import annotations

from typing import Any

from elasticjob.devcluster.server.model.schemas import PRESERVE, Schema, items, member, members


def prune(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Remove unknown fields; return their paths."""
    if isinstance(value, dict):
        return _prune_object(value, schema, path)
    if isinstance(value, list):
        below = items(schema)
        return [gone for index, item in enumerate(value) for gone in prune(item, below, f"{path}[{index}]")]
    return []


def _prune_object(value: dict[str, Any], schema: Schema, path: str) -> list[str]:
    gone: list[str] = []
    keeps = bool(schema.get(PRESERVE))
    for name in list(value):
        where = f"{path}.{name}" if path else name
        below = member(schema, name)
        if below is None:
            del value[name]
            gone.append(where)
        elif not (keeps and name not in members(schema)):
            gone += prune(value[name], below, where)
    return gone
