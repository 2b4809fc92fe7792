"""Definitions with mistakes in them, many at once too: every cause, in its words and in its order."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import SCALE, SPEC, definition
from tests.conformance.probe import CRDS, Probe, post, probe

V1 = definition()["spec"]["versions"][0]
TEXT = {"type": "string"}
LIST_MAP = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}


def refused(name: str, body: dict[str, Any], **more: Any) -> Probe:
    return probe(name, post(CRDS, body, dryRun="All", show=("metadata.name",), **more))


def spec(name: str, /, **changes: Any) -> Probe:
    body = definition()
    body["spec"] |= changes
    return refused(name, body)


def names(name: str, /, **changes: Any) -> Probe:
    return spec(name, names=definition()["spec"]["names"] | changes)


def version(name: str, /, **changes: Any) -> Probe:
    return spec(name, versions=[V1 | changes])


def root(name: str, /, **schema: Any) -> Probe:
    return refused(f"root: {name}", definition(schema={"type": "object", **schema}))


def field(name: str, schema: Any) -> Probe:
    return refused(f"field: {name}", definition({"type": "object", "properties": {"x": schema}}))


def conversion(name: str, /, **changes: Any) -> Probe:
    return spec(f"conversion: {name}", conversion=changes)


def webhook(name: str, versions: Any = ("v1",), **client: Any) -> Probe:
    return conversion(
        name, strategy="Webhook", webhook={"clientConfig": client, "conversionReviewVersions": list(versions)}
    )


PROBES: tuple[Probe, ...] = (
    refused(
        "an empty definition", {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    ),
    refused("nothing but a name", definition() | {"spec": {}}),
    refused(
        "a bad name and a bad label", definition() | {"metadata": {"name": "Things", "labels": {"a": "b c"}}}
    ),
    spec("a group that is no domain", group="Ex_ample.com"),
    spec("an unknown scope", scope="Global"),
    spec("a scope that is not there", scope=""),
    spec("a group of kubernetes", group="x.kubernetes.io"),
    refused(
        "an approval that is none",
        definition()
        | {
            "metadata": {"name": "things.x.k8s.io", "annotations": {"api-approved.kubernetes.io": "yes"}},
            "spec": definition()["spec"] | {"group": "x.k8s.io"},
        },
    ),
    refused(
        "an approval by a link",
        definition()
        | {
            "metadata": {
                "name": "things.x.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "https://example.com/1"},
            },
            "spec": definition()["spec"] | {"group": "x.k8s.io"},
        },
    ),
    spec("unknown fields are kept", preserveUnknownFields=True),
    names("a plural with capitals", plural="Things"),
    names("a singular with a dot", singular="a.thing"),
    names("a kind with a dash at its end", kind="Thing-", listKind="Thing_List"),
    names("a kind that is its list", listKind="Thing"),
    names("short names and categories", shortNames=["OK", "ok"], categories=["All things"]),
    names("a name too long", singular="a" * 64),
    spec("two versions of a name", versions=[V1, V1 | {"storage": False}]),
    spec("two stored versions", versions=[V1, V1 | {"name": "v2"}]),
    spec(
        "versions that differ, none stored",
        versions=[
            V1 | {"storage": False},
            {
                "name": "v2",
                "served": True,
                "storage": False,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            },
        ],
    ),
    spec(
        "versions that differ, each with mistakes",
        versions=[
            V1 | {"additionalPrinterColumns": [{"name": "A", "type": "text", "jsonPath": "x"}]},
            V1 | {"name": "v2", "storage": False, "subresources": {"scale": {}}, "schema": {}},
            V1 | {"name": "v3", "storage": False, "selectableFields": [{"jsonPath": ".spec.none"}]},
        ],
    ),
    version("a version that is no label", name="1.0"),
    version("an empty schema", schema={}),
    version("a warning without deprecation", deprecationWarning="old"),
    version("an empty warning", deprecated=True, deprecationWarning=""),
    version("a warning with a bell", deprecated=True, deprecationWarning="ä\a"),
    version("a warning too long", deprecated=True, deprecationWarning="x" * 257),
    version("an empty scale", subresources={"scale": {}}),
    version(
        "a scale out of place",
        subresources={
            "scale": SCALE
            | {
                "specReplicasPath": ".status.replicas",
                "statusReplicasPath": ".replicas",
                "labelSelectorPath": ".selector",
            }
        },
    ),
    version("a selector that is no path", subresources={"scale": SCALE | {"labelSelectorPath": "x"}}),
    version(
        "columns",
        additionalPrinterColumns=[
            {"name": "A"},
            {"type": "string", "jsonPath": ".a", "format": "short"},
            {"name": "B", "type": "date", "jsonPath": "spec"},
            {"name": "C", "type": "integer", "jsonPath": ".spec.x", "priority": 1, "format": "int32"},
        ],
    ),
    version(
        "selectable fields",
        selectableFields=[
            {"jsonPath": ""},
            {"jsonPath": "spec.mode"},
            {"jsonPath": ".spec.plain[0]"},
            {"jsonPath": ".spec.mode"},
            {"jsonPath": ".spec.mode"},
            {"jsonPath": ".spec."},
            {"jsonPath": ".spec.labels.x"},
            {"jsonPath": ".spec.free"},
        ],
    ),
    version(
        "nine selectable fields",
        schema={"openAPIV3Schema": {"type": "object", "properties": {f"f{i}": TEXT for i in range(9)}}},
        selectableFields=[{"jsonPath": f".f{i}"} for i in range(9)],
    ),
    root("nullable", nullable=True),
    root("a map", additionalProperties=TEXT),
    root("an enum, with a status", enum=[{}], properties={"status": {"type": "object"}}),
    root("one of, with a status", oneOf=[{"required": ["spec"]}]),
    root("preserving, with a status", **{"x-kubernetes-preserve-unknown-fields": True}),
    root("kind and apiVersion", properties={"kind": {"type": "integer"}, "apiVersion": {"type": "object"}}),
    root("metadata that is a text", properties={"metadata": TEXT}),
    root("metadata with a name", properties={"metadata": {"type": "object", "properties": {"name": TEXT}}}),
    root("required metadata", properties={"metadata": {"type": "object", "required": ["name"]}}),
    root(
        "defaults in metadata",
        properties={"metadata": {"type": "object", "properties": {"name": TEXT | {"default": "x"}}}},
    ),
    root("a keyword of JSON Schema", **{"$schema": "http://json-schema.org/draft-04/schema#"}),
    refused(
        "root: a status that is not defined, by logic",
        definition(
            schema={
                "type": "object",
                "anyOf": [{"properties": {"spec": {"properties": {"y": {}}}}}],
                "properties": {"spec": {"type": "object"}},
            },
            subresources={},
        ),
    ),
    refused(
        "root: items of no list, by logic",
        definition(
            schema={
                "type": "object",
                "not": {"properties": {"spec": {"items": {"minimum": 1}}}},
                "properties": {"spec": {"type": "object"}},
            },
            subresources={},
        ),
    ),
    field(
        "several mistakes at once",
        {
            "type": "object",
            "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "string", "pattern": "["}},
            "allOf": [{"type": "object", "description": "x"}],
        },
    ),
    field("no type of items", {"type": "array", "items": {}}),
    field("items that are a list", {"type": "array", "items": [TEXT]}),
    field(
        "everything that only stands outside",
        {
            "type": "object",
            "properties": {"a": TEXT},
            "anyOf": [
                {
                    "type": "object",
                    "title": "t",
                    "description": "d",
                    "default": {},
                    "nullable": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-int-or-string": True,
                    "x-kubernetes-list-type": "set",
                    "x-kubernetes-list-map-keys": ["a"],
                    "x-kubernetes-map-type": "atomic",
                    "additionalProperties": TEXT,
                }
            ],
        },
    ),
    field(
        "logic within logic",
        {
            "type": "object",
            "properties": {"a": TEXT},
            "not": {"oneOf": [{"properties": {"a": {"type": "string"}, "metadata": {}}}]},
        },
    ),
    field(
        "int-or-string in all of",
        {
            "x-kubernetes-int-or-string": True,
            "allOf": [
                {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                {"pattern": "^a", "type": "string"},
            ],
        },
    ),
    field(
        "int-or-string, preserving",
        {
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    ),
    field("preserving: false", {"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
    field(
        "an embedded resource without a type",
        {
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    ),
    field(
        "an embedded resource that is a list",
        {"type": "array", "items": TEXT, "x-kubernetes-embedded-resource": True},
    ),
    field(
        "an embedded resource with a map",
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "additionalProperties": TEXT,
        },
    ),
    field(
        "an embedded resource in metadata",
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {
                "metadata": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                }
            },
        },
    ),
    field("type null", {"type": "null"}),
    field(
        "words nobody has",
        {
            "type": "object",
            "id": "x",
            "patternProperties": {"a": TEXT},
            "definitions": {"a": TEXT},
            "dependencies": {"a": ["b"]},
            "additionalItems": False,
        },
    ),
    field(
        "unique items in a map",
        {"type": "object", "additionalProperties": {"type": "array", "uniqueItems": True, "items": TEXT}},
    ),
    field("a map that is a list", {"type": "array", "items": TEXT, "x-kubernetes-map-type": "atomic"}),
    field("an unknown map type", {"type": "object", "x-kubernetes-map-type": "bag"}),
    field(
        "a list type without a type",
        {"x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-list-type": "set"},
    ),
    field(
        "keys of a set",
        {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "x-kubernetes-list-map-keys": ["a"],
            "items": TEXT,
        },
    ),
    field("keys of a plain list", {"type": "array", "x-kubernetes-list-map-keys": ["a"], "items": TEXT}),
    field(
        "keys that are not there, twice",
        LIST_MAP
        | {
            "x-kubernetes-list-map-keys": ["a", "b", "b"],
            "items": {"type": "object", "required": ["b"], "properties": {"b": TEXT}},
        },
    ),
    field(
        "a key that is an object",
        LIST_MAP
        | {
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "object"}}},
        },
    ),
    field(
        "a key that may be null, of items that may",
        LIST_MAP
        | {
            "items": {"type": "object", "nullable": True, "properties": {"a": TEXT | {"nullable": True}}},
        },
    ),
    field(
        "a set of lists that are sets",
        {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        },
    ),
    field(
        "a set of texts that may be null",
        {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": TEXT | {"nullable": True},
        },
    ),
    field(
        "a set of atomic maps",
        {
            "type": "array",
            "x-kubernetes-list-type": "set",
            "items": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT}},
        },
    ),
    field(
        "properties and a map of anything",
        {"type": "object", "properties": {"a": TEXT}, "additionalProperties": True},
    ),
    field("a map of nothing", {"type": "object", "additionalProperties": False}),
    field(
        "a default with a mistake inside",
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "array", "items": TEXT | {"maxLength": 1}},
            },
            "default": {"b": ["long"]},  # one mistake: the order of two is chance
        },
    ),
    field(
        "a default that lacks something",
        {
            "type": "object",
            "required": ["a"],
            "properties": {"a": TEXT},
            "default": {},
        },
    ),
    field("a default of null", {"type": "string", "default": None}),
    field(
        "a default that may not be null",
        {
            "type": "object",
            "properties": {"a": TEXT},
            "default": {"a": None},
        },
    ),
    field("a default out of the choices", {"type": "string", "enum": ["a"], "default": "b"}),
    field("a default in a map", {"type": "object", "additionalProperties": TEXT | {"default": "a"}}),
    field(
        "a default in a list",
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
        },
    ),
    field("a default of a bad format", {"type": "string", "format": "date-time", "default": "soon"}),
    field("a pattern of a default", {"type": "string", "pattern": "^a+$", "default": "b"}),
    conversion("no strategy", strategy=""),
    conversion("an unknown strategy", strategy="Magic"),
    conversion("a webhook that is not there", strategy="Webhook"),
    conversion(
        "a webhook for nothing",
        strategy="None",
        webhook={
            "clientConfig": {"url": "https://example.com"},
            "conversionReviewVersions": ["v1"],
        },
    ),
    webhook("nowhere"),
    webhook("two places", url="https://example.com", service={"name": "a", "namespace": "b"}),
    webhook("a plain address", url="http://user@example.com/x?a=b#c"),
    webhook("no host", url="https:///x"),
    webhook("a service without names", service={"name": "", "namespace": "", "path": "x", "port": 0}),
    webhook("no versions", versions=(), url="https://example.com"),
    webhook("odd versions", versions=("v9", "v9", "V1"), url="https://example.com"),
    webhook("a good one", url="https://example.com/convert"),
    refused(
        "an unknown field, strictly", definition({"type": "object", "bogus": 1}), fieldValidation="Strict"
    ),
    refused("a wrong type in the schema", definition({"type": "object", "properties": {"x": {"type": 5}}})),
    refused("a wrong type of a version", definition() | {"spec": definition()["spec"] | {"versions": "v1"}}),
    *(
        field(f"pattern {number}: {text}", {"type": "string", "pattern": text})
        for number, text in enumerate(
            (
                "a**",
                "*a",
                "a)",
                "[a",
                "a\\",
                "\\Z",
                "a{2,1}",
                "a{1001}",
                "(?P<n",
                "(?<a>b)",
                "(?!a)",
                "(?<=a)b",
                "\\1",
                "[z-a]",
                "(a|b",
                "x++",
                "\\pX",
                "[[:odd:]]",
                "(?i)a",
                "a{,5}",
                "\\d+$",
            ),
            1,
        )
    ),
    refused("a known good one", definition({"type": "object", "properties": dict(SPEC["properties"])})),
)
