"""CustomResourceDefinitions: what is accepted, defaulted, refused, and what becomes of their objects."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import SPEC, defined, definition, thing
from tests.conformance.probe import CRDS, THINGS, Probe, delete, get, given, patch, post, probe, put

MAXIMUM = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/maximum"
CRD = f"{CRDS}/things.{{group}}"
THING = f"{THINGS}/one"


def refused(name: str, schema: Any, **more: Any) -> Probe:
    """A definition whose spec schema has one property of this schema."""
    spec = {"type": "object", "properties": {"x": schema}}
    return probe(
        f"schema: {name}", post(CRDS, definition(spec, **more), dryRun="All", show=("metadata.name",))
    )


def accepted(name: str, schema: Any) -> Probe:
    return refused(name, schema)


def rule(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 10}},
        "x-kubernetes-validations": [{"rule": text, **more}],
    }


def changed(**spec: Any) -> dict[str, Any]:
    body = definition()
    body["spec"] |= spec
    return body


PROBES: tuple[Probe, ...] = (
    probe(
        "a definition",
        post(CRDS, definition({"type": "object"})),
        get(
            CRD,
            until={"status.conditions.1.status": "True"},
            show=("spec", "status.conditions", "status.acceptedNames", "status.storedVersions"),
        ),
    ),
    probe(
        "before it is established",
        post(CRDS, definition({"type": "object"}), show=("status.conditions",)),
        get(CRD, until={"status.conditions.1.status": "True"}, show=("status.conditions",)),
    ),
    probe("twice", *defined(), post(CRDS, definition())),
    probe("a name that does not fit", post(CRDS, definition() | {"metadata": {"name": "others.{group}"}})),
    probe("no versions", post(CRDS, changed(versions=[]))),
    probe("no scope", post(CRDS, changed(scope="Everywhere"))),
    probe("no group", post(CRDS, changed(group=""))),
    probe(
        "a group without a dot",
        post(
            CRDS,
            changed(group="x") | {"metadata": {"name": "things.x"}},
            dryRun="All",
            show=("metadata.name",),
        ),
    ),
    probe("no kind", post(CRDS, changed(names={"plural": "things"}))),
    probe("no schema", post(CRDS, changed(versions=[{"name": "v1", "served": True, "storage": True}]))),
    probe(
        "no storage version",
        post(CRDS, changed(versions=[definition()["spec"]["versions"][0] | {"storage": False}])),
    ),
    probe(
        "kubectl's protected group",
        post(CRDS, changed(group="x.k8s.io") | {"metadata": {"name": "things.x.k8s.io"}}, dryRun="All"),
    ),
    refused("a reference", {"$ref": "#/definitions/y"}),
    refused("no type", {}),
    refused("an unknown type", {"type": "text"}),
    refused("unique items", {"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
    refused(
        "no more properties",
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
    ),
    refused("any of without a type", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    refused("a type inside of any of", {"type": "string", "anyOf": [{"type": "string", "minLength": 1}]}),
    refused("an array without items", {"type": "array"}),
    refused(
        "a list-map without keys",
        {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
    ),
    refused(
        "a list-map with an optional key",
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    ),
    refused(
        "a list-map of texts",
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "string"},
        },
    ),
    refused(
        "a set of objects", {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}
    ),
    refused(
        "an unknown list type",
        {"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}},
    ),
    refused("a list type of no list", {"type": "string", "x-kubernetes-list-type": "set"}),
    refused("a pattern that looks ahead", {"type": "string", "pattern": "^(?=a)"}),
    refused("a pattern that is none", {"type": "string", "pattern": "("}),
    refused("a default of the wrong type", {"type": "integer", "default": "x"}),
    refused("a default out of bounds", {"type": "integer", "minimum": 3, "default": 1}),
    refused(
        "a default with unknown fields",
        {"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}},
    ),
    refused("int-or-string with a type", {"type": "string", "x-kubernetes-int-or-string": True}),
    refused("preserve on a text", {"type": "string", "x-kubernetes-preserve-unknown-fields": True}),
    refused("an embedded resource", {"type": "object", "x-kubernetes-embedded-resource": True}),
    refused("an unknown keyword", {"type": "string", "const": "x"}),
    refused("a number where a flag is", {"type": "integer", "exclusiveMinimum": 0}),
    accepted("int-or-string", {"x-kubernetes-int-or-string": True, "default": "5"}),
    accepted("anything", {"x-kubernetes-preserve-unknown-fields": True}),
    accepted("an unknown format", {"type": "string", "format": "quantity"}),
    accepted("a title", {"type": "string", "title": "X", "example": "y"}),
    probe(
        "schema: labels in metadata",
        post(
            CRDS,
            definition(
                schema={
                    "type": "object",
                    "properties": {
                        "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}
                    },
                }
            ),
            dryRun="All",
        ),
    ),
    probe(
        "schema: a root that is no object", post(CRDS, definition(schema={"type": "string"}), dryRun="All")
    ),
    probe(
        "schema: an unknown keyword, strictly",
        post(CRDS, definition({"type": "object", "bogus": 1}), dryRun="All", fieldValidation="Strict"),
    ),
    refused("a rule", rule("self.n > 0")),
    refused("a rule that is no text", rule("")),
    refused(
        "a rule that does not parse",
        rule("self.n >"),
    ),
    refused("a rule about no field", rule("self.none > 0")),
    refused("a rule of the wrong type", rule("self.n")),
    refused("a rule with a wrong comparison", rule("self.n > 'a'")),
    refused("a rule of quantities", rule("quantity(self.s).isGreaterThan(quantity('1Gi'))")),
    refused("a rule of durations", rule("duration(self.s) > duration('5s')")),
    refused("a message over two lines", rule("true", message="a\nb")),
    refused("a message expression of the wrong type", rule("true", messageExpression="1")),
    refused("an unknown reason", rule("true", reason="Bogus")),
    refused("a field path to nowhere", rule("true", fieldPath=".none")),
    refused("a field path", rule("true", fieldPath=".n")),
    refused("optional old self without old self", rule("self.n > 0", optionalOldSelf=True)),
    refused("a transition rule", rule("self.n >= oldSelf.n")),
    refused(
        "a transition in a list",
        {
            "type": "array",
            "maxItems": 5,
            "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        },
    ),
    refused(
        "a rule that costs too much",
        {
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-validations": [{"rule": "self.all(a, self.exists_one(b, a == b))"}],
        },
    ),
    refused(
        "a rule within its bounds",
        {
            "type": "array",
            "maxItems": 64,
            "items": {"type": "string", "maxLength": 63},
            "x-kubernetes-validations": [{"rule": "self.all(a, self.exists_one(b, a == b))"}],
        },
    ),
    probe(
        "columns",
        post(
            CRDS,
            definition(
                additionalPrinterColumns=[
                    {"name": "A", "type": "text", "jsonPath": "spec.x"},
                    {"name": "", "type": "string", "jsonPath": ""},
                ]
            ),
            dryRun="All",
        ),
    ),
    probe(
        "selectable fields",
        post(CRDS, definition(selectableFields=[{"jsonPath": ".spec.none"}]), dryRun="All"),
        post(CRDS, definition(selectableFields=[{"jsonPath": ".spec.parts"}]), dryRun="All"),
        post(CRDS, definition(selectableFields=[{"jsonPath": ".metadata.name"}]), dryRun="All"),
    ),
    probe(
        "half a scale",
        post(CRDS, definition(subresources={"scale": {"specReplicasPath": ".spec.replicas"}}), dryRun="All"),
    ),
    probe("changing the scope", *defined(), patch("merge", CRD, {"spec": {"scope": "Cluster"}})),
    probe(
        "changing the kind",
        *defined(),
        patch(
            "merge",
            CRD,
            {"spec": {"names": {"kind": "Thang", "listKind": "ThangList"}}},
            show=("spec.names",),
        ),
    ),
    probe(
        "deleting a definition",
        *defined(),
        *given(post(THINGS, thing("one", {})), delete(CRD, show=())),
        get(CRD, until=404),
        get(THINGS, until=404, loose="which of the two 404s"),
    ),
    probe(
        "a version is no longer served",
        *defined(),
        *given(post(THINGS, thing("one", {}))),
        patch(
            "json",
            CRD,
            [{"op": "replace", "path": "/spec/versions/0/served", "value": False}],
            show=("spec.versions.0.served",),
        ),
        get(THINGS, until=404, loose="which of the two 404s"),
    ),
    probe(
        "a deprecated version",
        *defined(deprecated=True),
        post(THINGS, thing("one", {}), show=("kind",)),
        get(THING, show=("kind",)),
    ),
    probe(
        "a deprecated version with words",
        *defined(deprecated=True, deprecationWarning="use another"),
        get(THINGS, show=("kind",)),
    ),
    probe(
        "an old object and a younger schema",
        *defined(),
        *given(post(THINGS, thing("one", {"replicas": 50, "note": "x"}))),
        *given(
            patch(
                "json",
                CRD,
                [
                    {
                        "op": "replace",
                        "path": MAXIMUM,
                        "value": 9,
                    }
                ],
            )
        ),
        post(THINGS, thing("probe", {"replicas": 50}), dryRun="All", until=422),
        patch("merge", THING, {"metadata": {"labels": {"a": "b"}}}, show=("spec",)),
        patch("merge", THING, {"spec": {"note": "y"}}, show=("spec",)),
        patch("merge", THING, {"spec": {"replicas": 51}}, show=("spec",)),
        put(f"{CRDS}/none", definition(), show=("kind",)),
    ),
    probe(
        "a schema without properties",
        *defined(
            {
                "type": "object",
                "properties": {k: v for k, v in SPEC["properties"].items() if k in ("replicas", "mode")},
            }
        ),
        post(THINGS, thing("one", {"replicas": 1, "note": "x"}), show=("spec",)),
    ),
)
