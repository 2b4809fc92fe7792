"""A definition in the older form that the real server checks it in: what all versions share is on top.

So a refusal names the fields of a single version as `spec.validation`, `spec.subresources` and so on, and
shows versions with the names of Go's fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.schemas import Schema

_SHARED = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_ON_TOP = {"schema": "validation"}


@dataclass(frozen=True)
class Part:
    """What one version says, or what all say, of schema, subresources, columns and selectable fields."""

    said: Mapping[str, Any]
    path: str
    """`spec` for what all versions share."""

    @property
    def schema(self) -> Schema | None:
        found: Schema | None = (self.said.get("schema") or {}).get("openAPIV3Schema")
        return found

    def at(self, name: str) -> str:
        """The path of one of the four."""
        return f"{self.path}.{_ON_TOP.get(name, name) if self.path == 'spec' else name}"


def parts(versions: Sequence[Mapping[str, Any]]) -> tuple[list[Part], Part]:
    """The versions without what they all share, and that."""
    shared = {name for name in _SHARED if _is_shared(versions, name)}
    single = [Part(_without(each, shared), f"spec.versions[{index}]") for index, each in enumerate(versions)]
    top = {name: versions[0].get(name) for name in shared} if versions else {}
    return single, Part(top, "spec")


def _without(version: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in version.items() if name not in names}


def _is_shared(versions: Sequence[Mapping[str, Any]], name: str) -> bool:
    empty: Any = [] if name in ("additionalPrinterColumns", "selectableFields") else None
    return all((each.get(name) or empty) == (versions[0].get(name) or empty) for each in versions)


def shown_versions(versions: Sequence[Part]) -> list[Any]:
    """The versions as a refusal shows them."""
    return [_shown(_VERSION, each.said) for each in versions]


def shown_schema(schema: Schema) -> Any:
    """A schema as a refusal shows it."""
    return _shown(_SCHEMA, schema)


def fields_of(schema: Schema) -> Iterator[tuple[str, Any]]:
    """The members of a schema that are set: Go's name and the value, in Go's order."""
    for go, name, empty in _SCHEMA:
        value = schema.get(name)
        if value is not None and not (value == empty and type(value) is type(empty)):
            yield go, value


Row = tuple[str, str, Any]
"""Go's name, the name in JSON, and what Go has where nothing is said."""
_VERSION: tuple[Row, ...] = (
    ("Name", "name", ""),
    ("Served", "served", False),
    ("Storage", "storage", False),
    ("Deprecated", "deprecated", False),
    ("DeprecationWarning", "deprecationWarning", None),
    ("Schema", "schema", None),
    ("Subresources", "subresources", None),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", None),
    ("SelectableFields", "selectableFields", None),
)
_SCHEMA: tuple[Row, ...] = (
    ("ID", "id", ""),
    ("Schema", "$schema", ""),
    ("Ref", "$ref", None),
    ("Description", "description", ""),
    ("Type", "type", ""),
    ("Nullable", "nullable", False),
    ("Format", "format", ""),
    ("Title", "title", ""),
    ("Default", "default", None),
    ("Maximum", "maximum", None),
    ("ExclusiveMaximum", "exclusiveMaximum", False),
    ("Minimum", "minimum", None),
    ("ExclusiveMinimum", "exclusiveMinimum", False),
    ("MaxLength", "maxLength", None),
    ("MinLength", "minLength", None),
    ("Pattern", "pattern", ""),
    ("MaxItems", "maxItems", None),
    ("MinItems", "minItems", None),
    ("UniqueItems", "uniqueItems", False),
    ("MultipleOf", "multipleOf", None),
    ("Enum", "enum", None),
    ("MaxProperties", "maxProperties", None),
    ("MinProperties", "minProperties", None),
    ("Required", "required", None),
    ("Items", "items", None),
    ("AllOf", "allOf", None),
    ("OneOf", "oneOf", None),
    ("AnyOf", "anyOf", None),
    ("Not", "not", None),
    ("Properties", "properties", None),
    ("AdditionalProperties", "additionalProperties", None),
    ("PatternProperties", "patternProperties", None),
    ("Dependencies", "dependencies", None),
    ("AdditionalItems", "additionalItems", None),
    ("Definitions", "definitions", None),
    ("ExternalDocs", "externalDocs", None),
    ("Example", "example", None),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", None),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", False),
    ("XIntOrString", "x-kubernetes-int-or-string", False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", None),
    ("XListType", "x-kubernetes-list-type", None),
    ("XMapType", "x-kubernetes-map-type", None),
    ("XValidations", "x-kubernetes-validations", None),
)
_RULE: tuple[Row, ...] = (
    ("Rule", "rule", ""),
    ("Message", "message", ""),
    ("MessageExpression", "messageExpression", ""),
    ("Reason", "reason", None),
    ("FieldPath", "fieldPath", ""),
    ("OptionalOldSelf", "optionalOldSelf", None),
)
_COLUMN: tuple[Row, ...] = (
    ("Name", "name", ""),
    ("Type", "type", ""),
    ("Format", "format", ""),
    ("Description", "description", ""),
    ("Priority", "priority", 0),
    ("JSONPath", "jsonPath", ""),
)
_SCALE: tuple[Row, ...] = (
    ("SpecReplicasPath", "specReplicasPath", ""),
    ("StatusReplicasPath", "statusReplicasPath", ""),
    ("LabelSelectorPath", "labelSelectorPath", None),
)
_SUBRESOURCES: tuple[Row, ...] = (("Status", "status", None), ("Scale", "scale", None))
_BELOW: dict[str, tuple[Row, ...]] = {
    "Schema": (("OpenAPIV3Schema", "openAPIV3Schema", None),),
    "OpenAPIV3Schema": _SCHEMA,
    "Subresources": _SUBRESOURCES,
    "Scale": _SCALE,
    "Not": _SCHEMA,
}
_LISTS = {
    "AllOf": _SCHEMA,
    "OneOf": _SCHEMA,
    "AnyOf": _SCHEMA,
    "XValidations": _RULE,
    "AdditionalPrinterColumns": _COLUMN,
    "SelectableFields": (("JSONPath", "jsonPath", ""),),
}
_MAPS = ("Properties", "PatternProperties", "Definitions")


def _shown(rows: Sequence[Row], said: Mapping[str, Any]) -> dict[str, Any]:
    answer = {}
    for go, name, empty in rows:
        value = said.get(name)
        answer[go] = empty if value is None else _inside(go, value)
    return answer


def _inside(go: str, value: Any) -> Any:
    if go in _BELOW and isinstance(value, dict):
        return _shown(_BELOW[go], value)
    if go in _LISTS:
        return [_shown(_LISTS[go], each) for each in value]
    if go in _MAPS:
        return {name: shown_schema(each) for name, each in sorted(value.items())}
    if go == "Items":
        return {"Schema": shown_schema(value), "JSONSchemas": None}
    if go in ("AdditionalProperties", "AdditionalItems"):
        allowed = value if isinstance(value, bool) else True
        return {"Allows": allowed, "Schema": shown_schema(value) if isinstance(value, dict) else None}
    return value
