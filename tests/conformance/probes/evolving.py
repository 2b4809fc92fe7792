"""Definitions that change: more versions, other schemas, names that clash; what becomes of their objects."""

from __future__ import annotations

from typing import Any

from tests.conformance.objects import SPEC, STATUS, Body, defined, definition, thing
from tests.conformance.probe import (
    CRDS,
    THINGS,
    Probe,
    Step,
    apply,
    delete,
    get,
    given,
    patch,
    post,
    probe,
    put,
    watch,
)

CRD = f"{CRDS}/things.{{group}}"
OTHER = f"{CRDS}/others.{{group}}"
THING = f"{THINGS}/one"
V2 = THINGS.replace("v1", "v2")
TAKE = {"rv": "metadata.resourceVersion", "uid": "metadata.uid"}
ESTABLISHED = {"status.conditions.1.status": "True", "status.conditions.1.type": "Established"}
SCHEMA = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
SCHEMA_OF_V2 = SCHEMA.replace("/0/", "/1/")


def version(name: str, spec: Body | None = None, **more: Any) -> Body:
    root = {"type": "object", "properties": {"spec": spec or SPEC, "status": STATUS}}
    one: Body = definition()["spec"]["versions"][0]
    return one | {"name": name, "schema": {"openAPIV3Schema": root}, **more}


def of_versions(*versions: Body, **spec: Any) -> Body:
    body = definition()
    body["spec"] |= {"versions": list(versions), **spec}
    return body


def served(body: Body, *paths: str) -> tuple[Step, ...]:
    """Steps after which a definition of things is served in these versions."""
    return (
        post(CRDS, body, show=()),
        get(CRD, until=ESTABLISHED, show=()),
        *(get(path, until=200, show=()) for path in paths or (THINGS,)),
    )


def named(plural: str, kind: str, **names: Any) -> Body:
    body = definition({"type": "object"})
    body["metadata"]["name"] = f"{plural}.{{group}}"
    body["spec"]["names"] = {"plural": plural, "kind": kind, **names}
    return body


def schema(name: str, before: Body, after: Body, *steps: Step) -> Probe:
    """An object that was right, and a schema that has become another since."""
    spec = {"type": "object", "properties": {"x": before, "y": {"type": "string"}}}
    changed = [{"op": "replace", "path": f"{SCHEMA}/properties/x", "value": after}]
    known = [
        {"op": "add", "path": f"{SCHEMA}/properties/known", "value": {"type": "string", "default": "yes"}}
    ]
    return probe(
        f"schema: {name}",
        *defined(spec),
        *given(post(THINGS, thing("one", steps[0].body))),
        *given(patch("json", CRD, [*changed, *known])),
        post(THINGS, thing("two", {}), dryRun="All", until={"spec.known": "yes"}, show=()),
        *steps[1:],
    )


KNOWN = {"type": "object", "properties": SPEC["properties"] | {"known": {"type": "string", "default": "yes"}}}


def was(spec: Body) -> Step:
    """What the object was made with."""
    return post(THINGS, spec)


def changes(spec: Body, **more: Any) -> Step:
    return patch("merge", THING, {"spec": spec}, show=("spec",), **more)


TEXT: Body = {"type": "string"}
TWO = served(of_versions(version("v1"), version("v2", storage=False)), THINGS, V2)

PROBES: tuple[Probe, ...] = (
    probe(
        "the order of versions",
        *served(
            of_versions(
                version("v1beta1"),
                *(version(name, storage=False) for name in ("v1", "v2alpha1", "v10", "odd", "v2", "v1beta2")),
                version("v11", storage=False, served=False),
            ),
            THINGS,
        ),
        get("/apis/{group}", until={"versions.6.version": "odd"}),
    ),
    probe(
        "two of a kind",
        *defined({"type": "object"}),
        post(CRDS, named("others", "Thing"), show=()),
        get(OTHER, until={"status.conditions.0.status": "False"}, show=("status",)),
        get("/apis/{group}/v1/namespaces/{ns}/others"),
        *given(delete(OTHER)),
    ),
    probe(
        "two of a singular and of short names",
        *served(named("things", "Thing", shortNames=["a", "b"])),
        post(CRDS, named("others", "Other", singular="a", shortNames=["b", "things", "c"]), show=()),
        get(OTHER, until={"status.conditions.0.status": "False"}, show=("status",)),
        *given(delete(OTHER)),
    ),
    probe(
        "a name is free again",
        *defined({"type": "object"}),
        *given(post(CRDS, named("others", "Thing"))),
        get(OTHER, until={"status.conditions.0.status": "False"}, show=()),
        *given(delete(CRD)),
        get(OTHER, until={"status.conditions.0.status": "True", **ESTABLISHED}, show=("status",)),
        *given(delete(OTHER)),
    ),
    probe(
        "another short name",
        *defined({"type": "object"}),
        patch(
            "merge",
            CRD,
            {"spec": {"names": {"shortNames": ["th"], "categories": ["all"]}}},
            show=("spec.names",),
        ),
        get(CRD, until={"status.acceptedNames.shortNames.0": "th"}, show=("status", "metadata.generation")),
    ),
    probe(
        "an object in two versions",
        *TWO,
        post(THINGS, thing("one", {"replicas": 1})),
        get(f"{V2}/one"),
        patch("merge", f"{V2}/one", {"spec": {"replicas": 2}}),
        apply(f"{V2}/one", thing("one", {"note": "x"}) | {"apiVersion": "{group}/v2"}),
        apply(THING, thing("one", {"note": "y"})),
        get(V2, show=("kind", "apiVersion", "items.0.apiVersion", "items.0.spec")),
        post(V2, thing("two", {})),
        patch("merge", f"{V2}/one/status", {"status": {"phase": "x"}}, show=("apiVersion", "status")),
        patch("merge", f"{V2}/one/scale", {"spec": {"replicas": 3}}, show=("spec",)),
    ),
    probe(
        "a watch of another version",
        *TWO,
        post(THINGS, thing("one", {"replicas": 1}), take=TAKE, show=()),
        watch(
            V2,
            2,
            resourceVersion="{rv}",
            show=("apiVersion", "spec"),
            meanwhile=(patch("merge", THING, {"spec": {"replicas": 2}}, show=()), delete(THING, show=())),
        ),
    ),
    probe(
        "versions with schemas of their own",
        *served(
            of_versions(
                version("v1"),
                version(
                    "v2",
                    {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}},
                    storage=False,
                ),
            ),
            THINGS,
            V2,
        ),
        post(THINGS, thing("one", {"replicas": 1}), show=("spec",)),
        get(f"{V2}/one", show=("apiVersion", "spec")),
        patch("merge", f"{V2}/one", {"spec": {"size": 5}}, show=("spec",)),
        get(THING, show=("spec",)),
    ),
    probe(
        "another version is stored",
        *TWO,
        *given(post(THINGS, thing("one", {"replicas": 1}))),
        patch(
            "json",
            CRD,
            [
                {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
                {"op": "replace", "path": "/spec/versions/1/storage", "value": True},
                {"op": "replace", "path": f"{SCHEMA_OF_V2}/properties/note/maxLength", "value": 1},
            ],
            show=("status.storedVersions", "metadata.generation"),
        ),
        # a real server goes on writing in the old version until it has looked around
        post(V2, thing("two", {"note": "long"}, apiVersion="{group}/v2"), dryRun="All", until=422, show=()),
        get(f"{V2}/one", show=("apiVersion",)),
        # stored anew: of what is left in a version that is gone, a real server can list nothing any more
        patch("merge", f"{V2}/one", {"metadata": {"labels": {"a": "b"}}}, show=("apiVersion", "spec")),
        patch("json", CRD, [{"op": "remove", "path": "/spec/versions/0"}]),
        patch(
            "merge", f"{CRD}/status", {"status": {"storedVersions": ["v2"]}}, show=("status.storedVersions",)
        ),
        patch("json", CRD, [{"op": "remove", "path": "/spec/versions/0"}], show=("status.storedVersions",)),
        get(THINGS, until=404, loose="which of the two 404s"),
        get(V2, until=200, show=("items.0.apiVersion", "items.0.spec")),
    ),
    probe(
        "the stored version is taken off the books",
        *defined({"type": "object"}),
        patch("merge", f"{CRD}/status", {"status": {"storedVersions": []}}),
        patch("merge", f"{CRD}/status", {"status": {"storedVersions": ["v9"]}}),
        patch("merge", CRD, {"status": {"storedVersions": ["v9"]}}, show=("status.storedVersions",)),
    ),
    probe(
        "a group, a plural, a name",
        *defined({"type": "object"}),
        patch("merge", CRD, {"spec": {"group": "other.example.com"}}),
        patch("merge", CRD, {"spec": {"names": {"plural": "others"}}}),
        patch("merge", CRD, {"metadata": {"name": "others.{group}"}}),
        patch("merge", CRD, {"spec": {"names": {"singular": "x"}}}, show=("spec.names",)),
        patch("merge", CRD, {"spec": {"versions": []}}),
    ),
    probe(
        "replacing",
        *defined({"type": "object"}),
        put(CRD, definition({"type": "object"})),
        get(CRD, take=TAKE, show=()),
        put(
            CRD,
            definition() | {"metadata": {"name": "things.{group}", "resourceVersion": "{rv}"}},
            show=(
                "metadata.generation",
                "status.storedVersions",
                "spec.versions.0.schema.openAPIV3Schema.type",
            ),
        ),
        put(CRD, definition() | {"metadata": {"name": "things.{group}", "resourceVersion": "{rv}"}}),
    ),
    probe(
        "applying",
        apply(
            CRD,
            definition({"type": "object"}),
            "kubectl",
            show=("metadata.managedFields", "metadata.generation"),
        ),
        get(CRD, until=ESTABLISHED, show=()),
        apply(
            CRD,
            definition({"type": "object", "description": "x"}),
            "kubectl",
            show=("metadata.managedFields", "metadata.generation"),
        ),
        apply(CRD, definition({"type": "object", "description": "y"}), "other"),
        apply(
            CRD,
            definition({"type": "object", "description": "y"}),
            "other",
            force="true",
            show=("metadata.generation",),
        ),
    ),
    probe(
        "a strategic patch",
        *defined({"type": "object"}),
        patch(
            "strategic",
            CRD,
            {"spec": {"versions": [version("v1", {"type": "object", "description": "x"})]}},
            show=("spec.versions.0.schema.openAPIV3Schema.properties.spec", "metadata.generation"),
        ),
        patch("strategic", CRD, {"spec": {"versions": [{"name": "v1"}]}}),
    ),
    probe(
        "going, held by an object",
        *defined(),
        *given(
            post(THINGS, thing("one", {}) | {"metadata": {"name": "one", "finalizers": ["example.com/x"]}})
        ),
        delete(
            CRD,
            show=(
                "metadata.finalizers",
                "metadata.generation",
                "metadata.deletionGracePeriodSeconds",
                "status.conditions",
            ),
        ),
        get(THING, until={"metadata.deletionGracePeriodSeconds": 0}, show=("metadata.finalizers",)),
        post(THINGS, thing("two", {})),
        apply(f"{THINGS}/two", thing("two", {})),
        patch("merge", THING, {"spec": {"note": "x"}}, show=("spec.note",)),
        delete(CRD, show=("metadata.finalizers",)),
        patch("merge", CRD, {"metadata": {"labels": {"a": "b"}}}, show=("metadata.labels",)),
        patch("merge", THING, {"metadata": {"finalizers": None}}, show=("metadata.finalizers",)),
        get(CRD, until=404, show=()),
    ),
    probe(
        "deleting with conditions",
        *defined({"type": "object"}),
        get(CRD, take=TAKE, show=()),
        delete(CRD, {"preconditions": {"uid": "other"}}),
        delete(CRD, {"preconditions": {"resourceVersion": "1"}}, loose="versions"),
        delete(CRD, dryRun="All", show=("metadata.finalizers",)),
        get(CRD, show=("metadata.finalizers", "metadata.deletionTimestamp")),
        delete(CRD, {"preconditions": {"uid": "{uid}"}}, show=("kind",)),
    ),
    probe(
        "a version that is served again",
        *defined(),
        *given(post(THINGS, thing("one", {"replicas": 1}))),
        *given(patch("json", CRD, [{"op": "replace", "path": "/spec/versions/0/served", "value": False}])),
        get(THINGS, until=404, show=()),
        patch("json", CRD, [{"op": "replace", "path": "/spec/versions/0/served", "value": True}], show=()),
        get(THING, until=200, show=("spec",)),
    ),
    probe(
        "subresources come and go",
        *defined(subresources={}),
        post(
            THINGS,
            thing("one", {"replicas": 1}, status={"phase": "x"}),
            show=("spec", "status", "metadata.generation"),
        ),
        patch("merge", CRD, {"spec": {"versions": [version("v1", KNOWN)]}}, show=()),
        # a real server that is asked for the new status before it has looked around panics
        post(THINGS, thing("two", {}), dryRun="All", until={"spec.known": "yes"}, show=()),
        patch(
            "merge",
            f"{THING}/status",
            {"status": {"phase": "y"}},
            until=200,
            show=("status", "metadata.generation"),
        ),
        patch("merge", THING, {"status": {"phase": "z"}}, show=("status", "metadata.generation")),
        get(f"{THING}/scale", show=("spec",)),
        get(f"{THING}/none"),
    ),
    schema(
        "another type",
        TEXT,
        {"type": "integer"},
        was({"x": "a"}),
        changes({"y": "b"}),
        changes({"x": "b"}),
        changes({"x": 1}),
    ),
    schema(
        "fewer choices",
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "enum": ["b"]},
        was({"x": "a"}),
        changes({"y": "b"}),
        changes({"x": None}),
        changes({"x": "a"}),
    ),
    schema(
        "shorter",
        TEXT,
        {"type": "string", "maxLength": 1},
        was({"x": "long"}),
        changes({"y": "b"}),
        changes({"x": "longer"}),
    ),
    schema(
        "a pattern",
        TEXT,
        {"type": "string", "pattern": "^b"},
        was({"x": "a"}),
        changes({"y": "b"}),
        changes({"x": "c"}),
    ),
    schema(
        "required within",
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        {"type": "object", "required": ["a"], "properties": {"a": TEXT, "b": TEXT}},
        was({"x": {"b": "1"}}),
        changes({"y": "b"}),
        changes({"x": {"b": "2"}}),
        changes({"x": {"a": "2"}}),
    ),
    schema(
        "fewer items",
        {"type": "array", "items": TEXT},
        {"type": "array", "maxItems": 1, "items": TEXT},
        was({"x": ["a", "b"]}),
        changes({"y": "b"}),
        changes({"x": ["b", "a"]}),
        changes({"x": ["a", "b", "c"]}),
    ),
    schema(
        "a set",
        {"type": "array", "items": TEXT},
        {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        was({"x": ["a", "a"]}),
        changes({"y": "b"}),
        changes({"x": ["a", "a", "b"]}),
        changes({"x": ["b"]}),
        changes({"x": ["b", "b"]}),
    ),
    schema(
        "elements that have become stricter",
        {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        {
            "type": "array",
            "items": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 5}}},
        },
        was({"x": [{"a": 9}, {"a": 1}]}),
        changes({"y": "b"}),
        changes({"x": [{"a": 9}, {"a": 2}]}),
        changes({"x": [{"a": 8}]}),
    ),
    schema(
        "keyed elements that have become stricter",
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": TEXT, "a": {"type": "integer"}},
            },
        },
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": TEXT, "a": {"type": "integer", "maximum": 5}},
            },
        },
        was({"x": [{"k": "1", "a": 9}, {"k": "2", "a": 1}]}),
        changes({"x": [{"k": "2", "a": 2}, {"k": "1", "a": 9}]}),
        changes({"x": [{"k": "1", "a": 8}]}),
    ),
    schema(
        "a map that has become stricter",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "additionalProperties": {"type": "integer", "maximum": 5}},
        was({"x": {"a": 9, "b": 1}}),
        changes({"x": {"b": 2}}),
        changes({"x": {"a": 8}}),
    ),
    schema(
        "a rule",
        {"type": "integer"},
        {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]},
        was({"x": 9}),
        changes({"y": "b"}),
        changes({"x": 8}),
        changes({"x": 4}),
    ),
    schema(
        "no more unknown fields",
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "properties": {"a": TEXT}},
        was({"x": {"a": "1", "b": "2"}}),
        get(THING, show=("spec",)),
        changes({"y": "b"}),
    ),
    schema(
        "a default where a null was",
        {"type": "string", "nullable": True},
        {"type": "string", "default": "d"},
        was({"x": None}),
        get(THING, show=("spec",)),
        changes({"y": "b"}),
    ),
    schema(
        "numbers that are texts now",
        {"x-kubernetes-int-or-string": True},
        TEXT,
        was({"x": 5}),
        get(THING, show=("spec",)),
        changes({"y": "b"}),
        get(THINGS, show=("items.0.spec",)),
    ),
)
