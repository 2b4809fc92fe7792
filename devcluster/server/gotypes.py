"""What Go's JSON decoder says of a value that does not fit a built-in type."""

from __future__ import annotations

from typing import Any

from elasticjob.devcluster.server.schemas import (
    ANYTHING,
    GO_NAME,
    INT_OR_STRING,
    QUANTITY,
    Schema,
    items,
    member,
)
from elasticjob.devcluster.server.validation import FORMATS, is_integer

_QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_JSON = {dict: "object", list: "array", str: "string", bool: "bool"}
_TEXTS = {"string": "string", "boolean": "bool", "number": "float64"}


def unmarshal_problem(value: Any, schema: Schema, struct: str = "", path: str = "") -> str:
    """The first value of the wrong type, in Go's words; "" where all fit. Nulls are absent fields."""
    if value is None:
        return ""
    if problem := special_problem(value, schema):
        return problem
    if schema.get(INT_OR_STRING) or not _fits(value, schema):
        return "" if schema.get(INT_OR_STRING) else _told(value, schema, struct, path)
    if isinstance(value, dict):
        struct = schema[GO_NAME].rpartition(".")[2] if GO_NAME in schema else struct
        declared = schema.get("properties") or {}
        parts = (
            unmarshal_problem(child, member(schema, name) or ANYTHING, struct, _joined(path, name, declared))
            for name, child in value.items()
        )
        return next((problem for problem in parts if problem), "")
    if isinstance(value, list):
        found = (unmarshal_problem(child, items(schema), struct, path) for child in value)
        return next((problem for problem in found if problem), "")
    return ""


def _joined(path: str, name: str, declared: Schema) -> str:
    """Keys of a map are not part of the path."""
    if name not in declared:
        return path
    return f"{path}.{name}" if path else name


def special_problem(value: Any, schema: Schema) -> str:
    """What a type that reads itself (a quantity, a time, bytes) says of a value."""
    form = schema.get("format", "")
    if form == QUANTITY:
        good = isinstance(value, int | float) or (isinstance(value, str) and FORMATS[QUANTITY](value))
        return "" if good else _QUANTITY_RULE
    if schema.get(INT_OR_STRING) and not isinstance(value, str) and not is_integer(value):
        return f"json: cannot unmarshal {json_name(value)} into Go value of type int32"
    if form in ("date-time", "date-time-micro") and isinstance(value, str) and not FORMATS[form](value):
        layout = "2006-01-02T15:04:05.000000Z07:00" if form.endswith("micro") else "2006-01-02T15:04:05Z07:00"
        rest, wanted = (value[19:], ".000000") if _is_short(value) else (value, "2006")
        return f'parsing time "{value}" as "{layout}": cannot parse "{rest}" as "{wanted}"'
    if form == "byte" and isinstance(value, str) and (place := _not_base64(value)) is not None:
        return f"illegal base64 data at input byte {place}"
    return ""


def _is_short(text: str) -> bool:
    """Whether a time lacks nothing but its fraction."""
    return FORMATS["date-time"](text)


def _not_base64(text: str) -> int | None:
    """Where a text stops to be base64."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = text.rstrip("=") if len(text) % 4 == 0 and len(text) - len(text.rstrip("=")) < 3 else text
    bad = next((index for index, each in enumerate(body) if each not in alphabet), None)
    if bad is not None:
        return bad
    return None if len(text) % 4 == 0 else len(text) - len(text) % 4


def _fits(value: Any, schema: Schema) -> bool:
    wanted = schema.get("type")
    if wanted is None:
        return True
    if wanted == "integer":
        return is_integer(value)
    kinds: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
    }
    if wanted == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kinds[wanted])


def _told(value: Any, schema: Schema, struct: str, path: str) -> str:
    found = json_name(value)
    if found == "number" and isinstance(value, float):
        found = f"number {value}"
    return f"json: cannot unmarshal {found} into Go struct field {struct}.{path} of type {go_type(schema)}"


def json_name(value: Any) -> str:
    return _JSON.get(type(value), "number")


def go_type(schema: Schema) -> str:
    """`int32`, `[]v1.Container`, `map[string]string`, `v1.ObjectMeta`."""
    kind = schema.get("type")
    if GO_NAME in schema and kind == "object":
        return str(schema[GO_NAME])
    if kind == "array":
        return f"[]{go_type(items(schema))}"
    if kind == "object":
        return f"map[string]{go_type(schema.get('additionalProperties') or ANYTHING)}"
    if kind == "integer":
        return str(schema.get("format") or "int64")
    return _TEXTS.get(str(kind), "interface {}")
