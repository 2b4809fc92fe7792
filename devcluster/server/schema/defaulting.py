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
    more = schema.get("additionalProperties")
    for name in [name for name, child in value.items() if child is None]:
        below = declared.get(name, more)
        if isinstance(below, dict) and below.get("type") and not below.get("nullable"):
            del value[name]
    for name, below in declared.items():
        if name not in value and below.get("default") is not None:
            value[name] = copy.deepcopy(below["default"])
    for name, child in value.items():
        below = declared.get(name, more)
        if isinstance(below, dict):
            fill(child, below)
