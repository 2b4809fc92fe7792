"""Whether a plain JSON value has the shape of a published type: objects, lists, texts and numbers where
they belong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from elasticjob.api.core import definitions, document
from elasticjob.kube.objects.problem import Problem

REFERENCE: Final = "#/definitions/"
FREE: Final = ("Quantity", "IntOrString", "FieldsV1", "RawExtension", "JSON")
"""The last words of types that take several JSON types."""

KEYS: Final = "x-kubernetes-list-map-keys"
DEFAULT_KEYS: Final = {"protocol": "TCP"}
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


def unknown_fields(path: str, value: Any, type_name: str) -> Iterator[Problem]:
    """Find the fields of `value` that the published type `type_name` lacks.

    The definitions beside this file decide, not the server: a field that only a newer server knows is unknown
    until the definitions are renewed (hack/generate/core), for it cannot be told from a typing error.
    """
    return _unknown(path, value, {"$ref": REFERENCE + type_name})


def without_unknown(value: Any, type_name: str) -> tuple[Any, list[tuple[tuple[str | int, ...], str]]]:
    """Return `value` without what unknown_fields finds, and the steps to each of those, with the advice."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    return _look_up((), value, {"$ref": REFERENCE + type_name}, found), found


def repeated_keys(path: str, value: Any, type_name: str) -> Iterator[Problem]:
    """Find what lists of the published type `type_name` have twice, by their keys, whatever else is wrong.

    A custom resource may have each once. Pods themselves take some lists with repeated members, such as env.
    """
    return _repeats(path, value, {"$ref": REFERENCE + type_name})


def _repeats(path: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    schema = _resolve(schema)
    if isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, item in value.items():
            yield from _repeats(f"{path}.{name}", item, fields.get(name, others))
    elif isinstance(value, list):
        seen = set[str]()
        for index, item in enumerate(value):
            yield from _repeats(f"{path}[{index}]", item, schema.get("items", {}))
            if key := _key(item, schema.get(KEYS, ())):
                if key in seen:
                    yield Problem(f"{path}[{index}]", f"{key} is there twice: leave one out")
                seen.add(key)


def _key(item: Any, keys: Iterable[str]) -> str:
    """Return the words by which a member of a list is told from the others; "" where it has none."""
    if not isinstance(item, dict):
        return ""
    found = [item.get(name, DEFAULT_KEYS.get(name)) for name in keys]
    return " ".join(f"{value}" for value in found) if found and None not in found else ""


def _unknown(path: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    schema = _resolve(schema)
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(f"{path}[{index}]", item, schema.get("items", {}))
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in fields:
                yield from _unknown(f"{path}.{name}", item, fields[name])
            elif fields:
                yield Problem(f"{path}.{name}", f"unknown field{_advice(name, fields)}")
            else:
                yield from _unknown(f"{path}[{name}]", item, others)


def _look_up(
    steps: tuple[str | int, ...],
    value: Any,
    schema: Mapping[str, Any],
    found: list[tuple[tuple[str | int, ...], str]],
) -> Any:
    schema = _resolve(schema)
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_look_up((*steps, at), item, items, found) for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    unknown = value.keys() - fields if fields else set()
    found += [((*steps, name), f"unknown field{_advice(name, fields)}") for name in value if name in unknown]
    return {
        name: _look_up((*steps, name), item, fields.get(name, others), found)
        for name, item in value.items()
        if name not in unknown
    }


def _advice(name: str, fields: Mapping[str, Any]) -> str:
    near = get_close_matches(name, fields, 1)
    return f"; did you mean {near[0]}?" if near else f" in Kubernetes {document()['version']}: leave it out"


def _resolve(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].removeprefix(REFERENCE)
    return {} if name.rpartition(".")[2] in FREE else definitions()[name]


def _problems(path: str, value: Any, schema: Mapping[str, Any]) -> Iterator[Problem]:
    schema = _resolve(schema)
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
