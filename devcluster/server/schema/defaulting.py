"""Defaults of a schema, filled in (in place) where a field is absent, or null and may not be."""

from __future__ import annotations

import copy
from typing import Any

from elasticjob.devcluster.server.model.schemas import Schema, items


def fill(value: Any, schema: Schema) -> None:
    """Apply `default` at every depth; a default object is itself filled."""
    if isinstance(value, dict):
        _fill_object(value, schema)
    elif isinstance(value, list):
        below = items(schema)
        for item in value:
            fill(item, below)


def _fill_object(value: dict[str, Any], schema: Schema) -> None:
    declared: dict[str, Schema] = schema.get("properties") or {}
    for name, below in declared.items():
        if value.get(name, "") is None and not below.get("nullable") and below.get("type"):
            del value[name]
        if name not in value and below.get("default") is not None:
            value[name] = copy.deepcopy(below["default"])
        if name in value:
            fill(value[name], below)
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        for name in [name for name in value if name not in declared]:
            if value[name] is None and more.get("type") and not more.get("nullable"):
                del value[name]
            else:
                fill(value[name], more)
