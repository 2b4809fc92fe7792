"""What a version of a definition may say: schema, warning, scale, printer columns, selectable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.costs import cost_problems
from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.internalform import Part, fields_of, shown_schema
from elasticjob.devcluster.server.names import forbidden, missing, plain, wrong
from elasticjob.devcluster.server.rules import rule_problems
from elasticjob.devcluster.server.schemadefaults import default_problems
from elasticjob.devcluster.server.schemarules import keyword_problems, unreadable
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.devcluster.server.structural import structural_problems

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_WARNING_LENGTH = 256
_MOST_SELECTABLE = 8
_AT_ROOT = (
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
)


def has_status(part: Part) -> bool:
    """Whether a version has a status of its own."""
    return (part.said.get("subresources") or {}).get("status") is not None


def warning_problems(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A warning that nobody would see, or could not read."""
    text = version.get("deprecationWarning")
    if text is None:
        return
    for why in _warning_mistakes(text) if version.get("deprecated") else (_NOT_DEPRECATED,):
        yield Cause(path, f"Invalid value: {plain(text)}: {why}")


def _warning_mistakes(text: str) -> Iterator[str]:
    if len(text.encode()) > _WARNING_LENGTH:
        yield f"must be <= {_WARNING_LENGTH} characters long"
    if not text:
        yield "must not be an empty string"
    odd = next((index for index, letter in enumerate(text) if not letter.isprintable()), None)
    if odd is not None:
        where = len(text[:odd].encode())
        yield f"must only contain printable UTF-8 characters; non-printable character found at index {where}"


_NOT_DEPRECATED = "can only be set for deprecated versions"


def schema_problems(part: Part, *, with_status: bool) -> Iterator[Cause]:
    """Of a schema: its root, its structure or its defaults, its words, and then its rules."""
    schema = part.schema
    if schema is None:
        return
    path = f"{part.at('schema')}.openAPIV3Schema"
    found = list(_root_problems(schema, path, with_status=with_status))
    word = unreadable(schema)
    if not word:
        found += structural_problems(schema, path) or default_problems(schema, path)
    found += keyword_problems(schema, path)
    if word and not found:
        found = [wrong(path, "", f"OpenAPIV3Schema '{word}' is not supported")]
    yield from found
    if not found:
        found = list(rule_problems(schema, path))
        yield from found or cost_problems(schema, path)


def _root_problems(schema: Schema, path: str, *, with_status: bool) -> Iterator[Cause]:
    for name, value in fields_of(schema) if with_status else ():
        if name == "Type" and value != "object":
            why = (
                'only "object" is allowed as the type at the root of the schema if the status '
                "subresource is enabled"
            )
            yield wrong(f"{path}.type", value, why)
            break
        if name not in _AT_ROOT:
            why = (
                f"only [{' '.join(_AT_ROOT)}] fields are allowed at the root of the schema if the status "
                "subresource is enabled"
            )
            yield wrong(path, shown_schema(schema), why)
            break
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def rest_problems(part: Part, schema: Schema | None) -> Iterator[Cause]:
    """What a version says beside its schema."""
    scale = (part.said.get("subresources") or {}).get("scale")
    yield from _scale_problems(scale, f"{part.at('subresources')}.scale")
    yield from _column_problems(part.said.get("additionalPrinterColumns") or (), part)
    yield from _selectable_problems(part.said.get("selectableFields") or (), schema, part)


def _scale_problems(scale: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    """Scale paths that are missing, or elsewhere than in spec and status."""
    for name, roots, told in _SCALE_PATHS if scale is not None else ():
        text = (scale or {}).get(name) or ""
        if not text and len(roots) == 1:
            yield missing(f"{path}.{name}")
        elif text and text[0] != ".":
            yield wrong(f"{path}.{name}", text, "must be a simple json path starting with .")
        elif text and not text.startswith(roots):
            yield wrong(f"{path}.{name}", text, f"should be a json path under {told}")


_SCALE_PATHS = (
    ("specReplicasPath", (".spec.",), ".spec"),
    ("statusReplicasPath", (".status.",), ".status"),
    ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
)


def _column_problems(columns: Any, part: Part) -> Iterator[Cause]:
    """Printer columns without name, type or path, or of unknown types and formats."""
    for index, column in enumerate(columns):
        where = f"{part.at('additionalPrinterColumns')}[{index}]"
        kind, form, text = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
        kinds = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not column.get("name"):
            yield missing(f"{where}.name")
        if kind not in _COLUMN_TYPES:
            yield wrong(f"{where}.type", kind, kinds) if kind else missing(f"{where}.type", kinds)
        if form and form not in _COLUMN_FORMATS:
            yield wrong(f"{where}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
        if not text:
            yield missing(f"{where}.JSONPath")
        elif text[0] != ".":
            yield wrong(f"{where}.JSONPath", text, "must be a simple json path starting with .")


def _selectable_problems(fields: Any, schema: Schema | None, part: Part) -> Iterator[Cause]:
    """Selectable fields that are no scalars of the object's own, or named twice, or too many."""
    path, seen = part.at("selectableFields"), set[str]()
    for index, field in enumerate(fields):
        text = field.get("jsonPath") or ""
        where = f"{path}[{index}].jsonPath"
        if not text:
            yield missing(where)
            continue
        problem, found = _looked_up(text, schema or {})
        if problem:
            yield wrong(where, text, f"is an invalid path: {problem}")
            continue
        if text.startswith(".metadata"):
            yield wrong(where, text, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            yield wrong(where, text, _NO_SCALAR)
        if text in seen:
            yield Cause(where, f'Duplicate value: "{text}"', "FieldValueDuplicate")
        seen.add(text)
    if len(seen) > _MOST_SELECTABLE:
        yield Cause(path, f"Too many: {len(seen)}: must have at most 8 items", "FieldValueTooMany")


_NO_SCALAR = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
    "are allowed."
)


def _looked_up(text: str, schema: Schema) -> tuple[str, Schema]:
    """Why a dotted path leads nowhere, or ("" and) the schema at its end."""
    tokens = re.findall(r"[.\[\]]|[^.\[\]]+", text)
    for index, token in enumerate(tokens):
        if index % 2 == 0 and token == "[":
            return "array notation is not allowed", {}
        if index % 2 == 0 and token != ".":
            return f"expected [ or . but got: {token}", {}
        if index % 2:
            found = (schema.get("properties") or {}).get(token, schema.get("additionalProperties"))
            if not isinstance(found, dict):
                return "does not refer to a valid field", {}
            schema = found
    return ("unexpected end of JSON path", {}) if len(tokens) % 2 else ("", schema)
