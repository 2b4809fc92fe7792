"""What Go says when the outcome of a strategic patch does not fit a built-in type: no JSON is read for that.

The object is restored from maps and lists by reflection, whose complaints name kinds and no fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticjob.devcluster.server.gotypes import go_type, special_problem
from elasticjob.devcluster.server.schemas import ANYTHING, GO_NAME, INT_OR_STRING, Schema, items, member
from elasticjob.devcluster.server.validation import is_integer

_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}
_NUMBERS = ("int64", "float64")


def restore_problem(value: Any, schema: Schema) -> str:
    """The first value of the wrong kind, in Go's words; "" where all fit. Nulls are absent fields."""
    return next(_problems(value, schema), "")


def shown(value: Any) -> str:
    """A value as Go prints it: `map[spec:map[replicas:two]]`."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{shown(each)}' for name, each in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(shown, value))}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problems(value: Any, schema: Schema) -> Iterator[str]:
    if value is None or schema is ANYTHING:
        return
    problem = special_problem(value, schema)
    kind, is_bytes = schema.get("type"), schema.get("format") == "byte"
    if problem:
        yield f"error decoding from json: {problem}" if is_bytes else problem
    elif is_bytes and not isinstance(value, str):
        yield f"cannot restore slice from {_KINDS[type(value)]}"
    elif kind == "object":
        yield from _map_problems(value, schema)
    elif kind == "array":
        yield from _list_problems(value, schema)
    elif kind is not None and not schema.get(INT_OR_STRING):
        yield from _simple_problems(_KINDS[type(value)], value, go_type(schema))


def _map_problems(value: Any, schema: Schema) -> Iterator[str]:
    if not isinstance(value, dict):
        what = "struct from:" if GO_NAME in schema else "map from"
        yield f"cannot restore {what} {_KINDS[type(value)]}"
        return
    for name, child in value.items():
        yield from _problems(child, member(schema, name) or ANYTHING)


def _list_problems(value: Any, schema: Schema) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"cannot restore slice from {_KINDS[type(value)]}"
        return
    for child in value:
        yield from _problems(child, items(schema))


def _simple_problems(found: str, value: Any, wanted: str) -> Iterator[str]:
    """Numbers become each other where nothing is lost; all else is itself or nothing."""
    if found == wanted or (found in _NUMBERS and wanted == "float64"):
        return
    if found in _NUMBERS and wanted.startswith("int"):
        if not is_integer(value):
            yield f"cannot convert {found} to {wanted}"
    elif found == "int64" and wanted == "string":
        yield "cannot convert int64 to string"
    else:
        yield f"unrecognized type: {wanted}"
