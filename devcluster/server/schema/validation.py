"""Values against a schema: types, bounds, enums, patterns, formats, required fields, unique elements."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import missing, unsupported, wrong
from elasticjob.devcluster.server.model.schemas import (
    EMBEDDED,
    INT_OR_STRING,
    QUANTITY,
    Schema,
    item_key,
    items,
    member,
)
from elasticjob.kube.crd.patterns import matches

TYPE_INVALID = "FieldValueTypeInvalid"
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")


def is_integer(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def validate(value: Any, schema: Schema, path: str = "") -> Iterator[Cause]:
    """Every violation, in the order of the schema."""
    if value is None:
        yield from _check_null(schema, path)
        return
    if problem := _type_problem(value, schema, path):
        yield problem
        return
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, [str(each) for each in schema["enum"]])
    check = _CHECKS.get(type(value))
    if check is not None:
        yield from check(value, schema, path)
    if not _LOGIC.isdisjoint(schema):
        yield from _check_logic(value, schema, path)


def type_problem(value: Any, schema: Schema) -> str:
    """The first value of the wrong type or format, "" if all are right; a null is an absent field."""
    for cause in validate(value, schema):
        if cause.reason == TYPE_INVALID and '"null"' not in cause.message:
            return f"{cause.field} in body {cause.message.partition(' in body ')[2]}"
    return ""


def _check_null(schema: Schema, path: str) -> Iterator[Cause]:
    if schema.get("nullable") or not schema.get("type"):
        return
    yield _type_cause(path, "null", schema["type"])


def _type_problem(value: Any, schema: Schema, path: str) -> Cause | None:
    if schema.get(INT_OR_STRING):
        numeric = _TYPES["number"] if schema.get("format") == QUANTITY else is_integer
        good = numeric(value) or isinstance(value, str)
        return None if good else _type_cause(path, _name(value), "integer,string")
    wanted = schema.get("type")
    if wanted is None or _TYPES[wanted](value):
        return None
    return _type_cause(path, _name(value), wanted)


def _type_cause(path: str, found: str, wanted: str) -> Cause:
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Cause(path, message, TYPE_INVALID)


def _name(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _check_object(value: dict[str, Any], schema: Schema, path: str) -> Iterator[Cause]:
    for name in schema.get("required") or ():
        if name not in value:
            yield missing(f"{path}.{name}" if path else name)
    if schema.get(EMBEDDED):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                yield missing(f"{path}.{name}", "must not be empty")
    yield from _check_size(len(value), schema, path, "Properties", "properties", value)
    if _LEADING.isdisjoint(schema):
        return
    for name, child in value.items():
        below = member(schema, name)
        if below is not None:
            yield from validate(child, below, f"{path}.{name}" if path else name)


def _check_array(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    yield from _check_size(len(value), schema, path, "Items", "items", value)
    below = items(schema)
    for index, item in enumerate(value):
        yield from validate(item, below, f"{path}[{index}]")
    yield from _check_unique(value, schema, path)


def _check_unique(value: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    seen = set()
    for index, item in enumerate(value):
        key = msgspec.json.encode(item_key(schema, item) if kind == "map" else item).decode()
        if key in seen:
            shown = key.replace('":', '":')
            yield Cause(f"{path}[{index}]", f"Duplicate value: {shown}", "FieldValueDuplicate")
        seen.add(key)


def _check_size(size: int, schema: Schema, path: str, suffix: str, noun: str, value: Any) -> Iterator[Cause]:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if least is None and most is None:
        return
    if least is not None and size < least:
        yield wrong(path, size, f"{path} in body should have at least {least} {noun}")
    if most is not None and size > most:
        yield Cause(
            path,
            f"Too many: {size}: must have at most {most} {'item' if most == 1 else 'items'}",
            "FieldValueTooMany",
        )


def _check_string(value: str, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if least is not None and len(value) < least:
        yield wrong(path, value, f"{path} in body should be at least {least} chars long")
    if most is not None and len(value) > most:
        yield Cause(
            path,
            f"Too long: may not be more than {most} {'byte' if most == 1 else 'bytes'}",
            "FieldValueTooLong",
        )
    pattern = schema.get("pattern")
    if pattern and not matches(pattern, value):
        yield wrong(path, value, f"{path} in body should match '{pattern}'")
    check = FORMATS.get(schema.get("format", ""))
    if check and not check(value):
        cause = wrong(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"')
        yield Cause(path, cause.message, TYPE_INVALID)


def _check_number(value: float, schema: Schema, path: str) -> Iterator[Cause]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        relation = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield wrong(path, value, f"{path} in body should be {relation} {least}")
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        relation = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield wrong(path, value, f"{path} in body should be {relation} {most}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield wrong(path, value, f"{path} in body should be a multiple of {step}")


_LEADING = frozenset({"properties", "additionalProperties", EMBEDDED})
_LOGIC = frozenset({"allOf", "anyOf", "oneOf", "not"})
_CHECKS: dict[type, Callable[..., Iterator[Cause]]] = {
    dict: _check_object,
    list: _check_array,
    str: _check_string,
    int: _check_number,
    float: _check_number,
}


def _check_logic(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """allOf, anyOf, oneOf and not, which in a structural schema only restrict."""
    for each in schema.get("allOf") or ():
        yield from validate(value, each, path)
    any_of = schema.get("anyOf")
    if any_of and not any(_fits(value, each, path) for each in any_of):
        yield wrong(path, _brief(value), f"{path} in body must validate at least one schema (anyOf)")
    one_of = schema.get("oneOf")
    if one_of and sum(_fits(value, each, path) for each in one_of) != 1:
        yield wrong(path, _brief(value), f"{path} in body must validate one and only one schema (oneOf)")
    if "not" in schema and _fits(value, schema["not"], path):
        yield wrong(path, _brief(value), f"{path} in body must not validate the schema (not)")


def _brief(value: Any) -> Any:
    return _name(value) if isinstance(value, dict | list) else value


def _fits(value: Any, schema: Schema, path: str) -> bool:
    return next(validate(value, schema, path), None) is None


def _is_time(value: str) -> bool:
    if not re.match(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$", value):
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _is_date(value: str) -> bool:
    return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", value))


def _is_duration(value: str) -> bool:
    return bool(re.fullmatch(r"[+-]?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+|0", value))


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value.translate({10: None, 13: None}), validate=True)
    except ValueError:
        return False
    return True


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_time,
    "date-time-micro": lambda value: _is_time(value) and bool(re.search(r"\.\d{6}\D", value)),
    "date": _is_date,
    "duration": _is_duration,
    QUANTITY: lambda value: bool(_QUANTITY.fullmatch(value)),
    "byte": lambda value: _is_base64(value),
    "uuid": lambda value: bool(re.fullmatch(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", value)),
    "ipv4": lambda value: bool(re.fullmatch(r"(\d{1,3}\.){3}\d{1,3}", value)),
}
