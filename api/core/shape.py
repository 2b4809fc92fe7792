"""Whether a plain JSON value has the shape of a published type: objects, lists, texts and numbers where
they belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from elasticjob.api.core import definitions
from elasticjob.kube.objects.problem import Problem

REFERENCE: Final = "#/definitions/"
FREE: Final = ("Quantity", "IntOrString", "FieldsV1", "RawExtension", "JSON")
"""The last words of types that take several JSON types."""

WORDS: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "object": ("fields", (dict,)),
    "array": ("a list", (list,)),
    "string": ("text", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
}


def shape_problems(path: str, value: Any, type_name: str) -> Iterator[Problem]:
    """Find where `value` differs from the published type `type_name`; null and unknown fields are right."""
    return _problems(path, value, {"$ref": REFERENCE + type_name})


def _problems(path: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        schema = {} if name.rpartition(".")[2] in FREE else definitions()[name]
    if value is None or "type" not in schema:
        return
    word, types = WORDS[schema["type"]]
    if not isinstance(value, types) or isinstance(value, bool) != (schema["type"] == "boolean"):
        yield Problem(path, f"{value!r:.40} is not {word}: write {word} here")
    elif isinstance(value, dict):
        yield from _field_problems(path, value, schema)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item is None:
                yield Problem(f"{path}[{index}]", "an entry of a list cannot be null: leave it out")
            yield from _problems(f"{path}[{index}]", item, schema.get("items", {}))


def _field_problems(path: str, value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Problem]:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, item in value.items():
        if name in fields:
            yield from _problems(f"{path}.{name}", item, fields[name])
        elif others:
            yield from _problems(f"{path}[{name}]", item, others)
