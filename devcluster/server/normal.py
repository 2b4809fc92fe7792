"""Built-in objects as the real server would decode and encode them: no nulls, quantities as text."""

from __future__ import annotations

from typing import Any

from elasticjob.devcluster.server.schemas import ANYTHING, QUANTITY, Schema, items, member

_EMPTY: dict[str, Any] = {}  # what Go makes of a null among structs


def normalise(value: Any, schema: Schema) -> Any:
    """Return the value in normal form; parts without a schema stay as they are."""
    if schema.get("format") == QUANTITY:
        return _quantity(value)
    if isinstance(value, dict) and schema is not ANYTHING:
        return {
            name: normalise(child, member(schema, name) or ANYTHING)
            for name, child in value.items()
            if child is not None
        }
    if isinstance(value, list):
        below = items(schema)
        return [normalise(_EMPTY if item is None else item, below) for item in value]
    return value


def _quantity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if value == int(value) and isinstance(value, int) else _decimal(value)


def _decimal(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"
