"""JSON Schemas of Kubernetes' objects that refuse unknown fields, from its OpenAPI document and from CRDs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from elasticjob.api.core import definitions
from hack.generate.core.openapi import REFERENCE, Schema, references

LOCAL: Final = "#/$defs/"
LOOSE: Final[Mapping[str, Mapping[str, Any]]] = {
    "Quantity": {"type": ["string", "number"]},
    "IntOrString": {"type": ["integer", "string"]},
    "FieldsV1": {"type": "object"},
    "RawExtension": {"type": "object"},
    "JSON": {},
    "JSONSchemaProps": {"type": "object"},
    "JSONSchemaPropsOrBool": {},
    "JSONSchemaPropsOrArray": {},
    "JSONSchemaPropsOrStringArray": {},
}
"""Types whose published schema is narrower than what servers take, or endless."""
KEPT: Final = frozenset(
    {"type", "enum", "required", "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems"}
)


def closed(schema: Mapping[str, Any]) -> Schema:
    """Return a schema of OpenAPI as one that refuses properties it does not name."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace(REFERENCE, LOCAL)}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    found: Schema = {name: value for name, value in schema.items() if name in KEPT}
    if "items" in schema:
        found["items"] = closed(schema["items"])
    if "properties" in schema:
        found["properties"] = {name: closed(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found["additionalProperties"] = False
    if isinstance(more := schema.get("additionalProperties"), dict):
        found["additionalProperties"] = closed(more)
    if schema.get("nullable") and "type" in found:
        found["type"] = [found["type"], "null"]
    return found


def built_in(*names: str) -> Schema:
    """Return the closed schemas of built-in types and of all that they refer to, by name."""
    found: Schema = {}
    missing = list(names)
    while missing:
        name = missing.pop()
        if name in found:
            continue
        short = name.rpartition(".")[2]
        found[name] = dict(LOOSE[short]) if short in LOOSE else closed(definitions()[name])
        missing += [each.removeprefix(LOCAL) for each in references(found[name])]
    return found


def of_definition(crd: Mapping[str, Any], version: str) -> Schema:
    """Return the closed schema of one version of a CRD."""
    served = next(each for each in crd["spec"]["versions"] if each["name"] == version)
    found = closed(served["schema"]["openAPIV3Schema"])
    found["properties"] |= {name: {"type": "string"} for name in ("apiVersion", "kind")}
    found["properties"]["metadata"] = {"$ref": f"{LOCAL}{META}"}
    return found | {"$defs": built_in(META)}


def of_kind(name: str) -> Schema:
    """Return the closed schema of a built-in type, which contains all that it refers to."""
    return {"$ref": f"{LOCAL}{name}", "$defs": built_in(name)}


META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
