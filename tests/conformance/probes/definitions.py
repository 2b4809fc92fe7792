"""CustomResourceDefinitions: how they are served and change."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *

MAXIMUM = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas/maximum"
CRD = f"{CRDS}/things.{{group}}"
V2 = THINGS.replace("v1", "v2")
SCHEMA = "/spec/versions/0/schema/openAPIV3Schema/properties/spec"
SCHEMA_OF_V2 = SCHEMA.replace("/0/", "/1/")


def version(name: str, spec: Body | None = None, **more: Any) -> Body:
    root = {"type": "object", "properties": {"spec": spec or SPEC, "status": STATUS}}
    one: Body = definition()["spec"]["versions"][0]
    return one | {"name": name, "schema": {"openAPIV3Schema": root}, **more}


def of_versions(*versions: Body, **spec: Any) -> Body:
    made = definition()
    made["spec"] |= {"versions": list(versions), **spec}
    return made


def served(crd: Body, *paths: str) -> tuple[Step, ...]:
    """Steps after which a definition of things is served in these versions."""
    return (
        post(CRDS, crd, show=()),
        get(CRD, until=ESTABLISHED, show=()),
        *(get(path, until=200, show=()) for path in paths or (THINGS,)),
    )


def described(description: str = "") -> Body:
    return definition({"type": "object"} | ({"description": description} if description else {}))


OTHER = f"{CRDS}/others.{{group}}"
CLAIMANT = definition({"type": "object"}) | {"metadata": {"name": "others.{group}"}}
CLAIMANT["spec"]["names"] = {"plural": "others", "kind": "Thing"}
TWO = served(of_versions(version("v1"), version("v2", storage=False)), THINGS, V2)

PROBES: tuple[Probe, ...] = (
    probe("a definition", post(CRDS, definition({"type": "object"})),
          get(CRD, until={"status.conditions.1.status": "True"},
              show=("spec", "status.conditions", "status.acceptedNames", "status.storedVersions"))),
    probe("twice", *defined(), post(CRDS, definition())),
    probe("deleting a definition", *defined(), *given(post(THINGS, thing("one", {})), delete(CRD, show=())),
          get(CRD, until=404), get(THINGS, until=404, show=())),
    probe("a version is no longer served", *stored({}),
          patch("json", CRD, [{"op": "replace", "path": "/spec/versions/0/served", "value": False}],
                show=("spec.versions.0.served",)), get(THINGS, until=404, show=())),
    probe("a deprecated version", *defined(deprecated=True), post(THINGS, thing("one", {}), show=("kind",)),
          get(THING, show=("kind",))),
    probe("a deprecated version with words", *defined(deprecated=True, deprecationWarning="use another"),
          get(THINGS, show=("kind",))),
    probe(
        "an old object and a younger schema",
        *stored({"replicas": 50, "note": "x"}),
        *given(patch("json", CRD, [{"op": "replace", "path": MAXIMUM, "value": 9}])),
        post(THINGS, thing("probe", {"replicas": 50}), dryRun="All", until=422),
        patch("merge", THING, {"metadata": {"labels": {"a": "b"}}}, show=("spec",)),
        patch("merge", THING, {"spec": {"note": "y"}}, show=("spec",)),
        patch("merge", THING, {"spec": {"replicas": 51}}, show=("spec",)),
        put(f"{CRDS}/none", definition(), show=("kind",)),
    ),
    probe(
        "a schema without properties",
        *defined(of_fields("replicas", "mode")),
        post(THINGS, thing("one", {"replicas": 1, "note": "x"}), show=("spec",)),
    ),
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
    probe("a name is free again", *defined({"type": "object"}), *given(post(CRDS, CLAIMANT)),
          get(OTHER, until={"status.conditions.0.status": "False"}, show=()), *given(delete(CRD)),
          get(OTHER, until={"status.conditions.0.status": "True", **ESTABLISHED}, show=("status",)),
          *given(delete(OTHER))),
    probe(
        "another short name",
        *defined({"type": "object"}),
        patch("merge", CRD, {"spec": {"names": {"shortNames": ["th"], "categories": ["all"]}}},
              show=("spec.names",)),
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
    probe("a watch of another version", *TWO, post(THINGS, thing("one", {"replicas": 1}), take=TAKE, show=()),
          watch(V2, 2, resourceVersion="{rv}", show=("apiVersion", "spec"),
                meanwhile=(patch("merge", THING, {"spec": {"replicas": 2}}, show=()),
                           delete(THING, show=())))),
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
        patch("merge", f"{CRD}/status", {"status": {"storedVersions": ["v2"]}},
              show=("status.storedVersions",)),
        patch("json", CRD, [{"op": "remove", "path": "/spec/versions/0"}], show=("status.storedVersions",)),
        get(THINGS, until=404, show=()),
        get(V2, until=200, show=("items.0.apiVersion", "items.0.spec")),
    ),
    probe(
        "applying",
        apply(CRD, described(), "kubectl", show=("metadata.managedFields", "metadata.generation")),
        get(CRD, until=ESTABLISHED, show=()),
        apply(CRD, described("x"), "kubectl", show=("metadata.managedFields", "metadata.generation")),
        apply(CRD, described("y"), "other"),
        apply(CRD, described("y"), "other", force="true", show=("metadata.generation",)),
    ),
    probe("a strategic patch", *defined({"type": "object"}),
          patch("strategic", CRD,
                {"spec": {"versions": [version("v1", {"type": "object", "description": "x"})]}},
                show=("spec.versions.0.schema.openAPIV3Schema.properties.spec", "metadata.generation"))),
    probe(
        "going, held by an object",
        *defined(),
        *given(post(THINGS, held(thing("one", {}), "example.com/x"))),
        delete(CRD, show=("metadata.finalizers", "metadata.generation", "metadata.deletionGracePeriodSeconds",
                          "status.conditions")),
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
        "a version that is served again",
        *stored({"replicas": 1}),
        *given(patch("json", CRD, [{"op": "replace", "path": "/spec/versions/0/served", "value": False}])),
        get(THINGS, until=404, show=()),
        patch("json", CRD, [{"op": "replace", "path": "/spec/versions/0/served", "value": True}], show=()),
        get(THING, until=200, show=("spec",)),
    ),
)  # fmt: skip
