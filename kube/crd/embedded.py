"""A published Kubernetes type → the structural schema of a custom resource's field that holds it.

The published definitions are not accepted as they stand: some keys of keyed lists are neither required nor
defaulted, merge keys are unknown words, numbers and quantities claim to be text. Descriptions are left out
(they would be 300 KB a template), and the metadata of a template is reduced to what templates use, for a bare
`type: object` would be pruned empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from elasticjob.kube.crd.schemas import INT_OR_STRING, LIST_KEYS, PRESERVE, Schema

Definitions = Mapping[str, Schema]


class Detail(StrEnum):
    """How much of an embedded type its schema says."""

    FULL = "full"
    """All fields; what is newer than the definitions is pruned."""

    TYPED = "typed"
    """All fields, and what is newer in the type's spec is kept."""

    OPAQUE = "opaque"
    """Nothing: all is kept, nothing is checked."""


TEXT: Final[Schema] = {"type": "string"}
METADATA: Final[Schema] = {
    "type": "object",
    "properties": {
        "annotations": {"type": "object", "additionalProperties": TEXT},
        "creationTimestamp": {**TEXT, "format": "date-time", "nullable": True},
        "finalizers": {"type": "array", "items": TEXT},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "name": TEXT,
        "namespace": TEXT,
    },
}
CORRECTED: Final[Mapping[str, Schema]] = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": METADATA,
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {**TEXT, "format": "date-time"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {**TEXT, "format": "date-time"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {INT_OR_STRING: True},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {INT_OR_STRING: True},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {"type": "object", PRESERVE: True},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object", PRESERVE: True},
}
KEY_DEFAULTS: Final[Mapping[str, str]] = {"protocol": "TCP", "name": ""}
"""The default that the server itself uses for a list key that a manifest may leave out."""

REFERENCE: Final = "#/definitions/"
KEPT: Final = frozenset(
    f"type format enum properties required items additionalProperties {LIST_KEYS} "
    "x-kubernetes-list-type x-kubernetes-map-type".split()
)


def embedded_schema(name: str, definitions: Definitions, detail: Detail = Detail.TYPED) -> Schema:
    """Return the structural schema of the published type `name`, as detailed as asked for."""
    if detail is Detail.OPAQUE:
        return {"type": "object", PRESERVE: True}
    found = publish(definitions[name], definitions)
    if detail is Detail.TYPED:
        whole = found["properties"].get("spec", found)
        whole[PRESERVE] = True
    return found


def publish(node: Any, definitions: Definitions) -> Schema:
    """Return a definition with references inlined, and only the words that servers read in a CRD."""
    if "$ref" in node:
        name = node["$ref"].removeprefix(REFERENCE)
        return dict(CORRECTED[name]) if name in CORRECTED else publish(definitions[name], definitions)
    found = {key: value for key, value in node.items() if key in KEPT}
    if "properties" in found:
        found["properties"] = {key: publish(child, definitions) for key, child in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = publish(found[key], definitions)
    return with_key_defaults(found)


def with_key_defaults(node: Schema) -> Schema:
    """Return a list's schema with a default for each key that its items may leave out."""
    items = node.get("items", {})
    for key in node.get(LIST_KEYS, ()):
        if key not in items.get("required", ()):
            fields = {**items["properties"], key: {**items["properties"][key], "default": KEY_DEFAULTS[key]}}
            items = {**items, "properties": fields}
    return {**node, "items": items} if items else node
