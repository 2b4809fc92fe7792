"""Create, read, replace, delete: what holds for every kind."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

A = config_map("a", {"x": "1"})

PROBES: tuple[Probe, ...] = (
    probe("a new config map", post(MAPS, A), get(ONE)),
    probe("creating twice", *given(post(MAPS, A)), post(MAPS, A)),
    probe("reading what is not there", get(ONE), delete(ONE), put(ONE, A)),
    probe("no name", post(MAPS, {"metadata": {}}), post(PODS, {"metadata": {}})),
    probe("generated names", post(MAPS, {"metadata": {"generateName": "pre-"}})),
    probe("a long generated name",
          post(MAPS, {"metadata": {"generateName": "p" * 100}}, show=("metadata.generateName",))),
    probe("a bad generated name", post(MAPS, {"metadata": {"generateName": "Bad_"}})),
    probe("a bad name", post(MAPS, config_map("A_b"))),
    probe("a name too long", post(MAPS, config_map("a" * 254))),
    probe("a bad pod name", post(PODS, pod("Bad_"))),
    probe("a bad label value", post(MAPS, config_map("a", labels={"x": "b c"}))),
    probe("a bad label key", post(MAPS, config_map("a", labels={"-": "b"}))),
    probe("a bad label prefix", post(MAPS, config_map("a", labels={"Ex_a/x": "b"}))),
    probe("a label value too long", post(MAPS, config_map("a", labels={"x": "b" * 64}))),
    probe("a label that is a number", post(MAPS, config_map("a", labels={"x": 1}))),
    probe("a bad annotation key", post(MAPS, config_map("a", annotations={"a b": "c"}))),
    probe("annotations too long", post(MAPS, config_map("a", annotations={"a": "b" * 262145}))),
    probe("a finalizer without a domain", post(MAPS, config_map("a", finalizers=["x"]))),
    probe("an owner without uid",
          post(MAPS, config_map("a", ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x"}]))),
    probe("an owner without anything", post(MAPS, config_map("a", ownerReferences=[{}]))),
    probe(
        "two controllers",
        post(
            MAPS,
            config_map(
                "a",
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
                    for name in ("x", "y")
                ],
            ),
        ),
    ),
    probe("another kind", post(MAPS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})),
    probe("another version", post(MAPS, A | {"apiVersion": "v2"})),
    probe("a value of the wrong type", post(MAPS, config_map("a", {"x": 1}))),
    probe("a body in YAML",
          post(MAPS, Raw("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), media=YAML)),
    probe("a version on a new object", post(MAPS, config_map("a", resourceVersion="1"))),
    probe("another namespace in the body", post(MAPS, config_map("a", namespace="other"))),
    probe(
        "what only the server may set",
        post(
            MAPS,
            config_map(
                "a",
                uid="mine",
                generation=7,
                selfLink="/x",
                creationTimestamp="2001-01-01T00:00:00Z",
                deletionTimestamp="2001-01-01T00:00:00Z",
                deletionGracePeriodSeconds=5,
            ),
        ),
    ),
    probe("an unknown resource", get(f"{CORE}/nothings"), get("/apis/none.example.com/v1/things")),
    probe("an unknown path", get("/nowhere"), get("/apis/none.example.com")),
    probe("a namespace that is not there", post(f"{NAMESPACES}/none-such/configmaps", A)),
    probe("reading in a namespace that is not there", get(f"{NAMESPACES}/none-such/configmaps")),
    probe("a method that is not allowed", post(ONE, A), put(MAPS, A), get(f"{ONE}/status")),
    probe("replacing", *given(post(MAPS, A)), put(ONE, config_map("a", {"x": "2", "y": "3"})), get(ONE)),
    probe("replacing by the same", post(MAPS, A, take=TAKE), put(ONE, A)),
    probe("replacing an old version", *given(post(MAPS, A, take=TAKE), put(ONE, config_map("a", {"x": "2"}))),
          put(ONE, config_map("a", {"x": "3"}, resourceVersion="{rv}"))),
    probe("replacing the newest version", *given(post(MAPS, A, take=TAKE)),
          put(ONE, config_map("a", {"x": "3"}, resourceVersion="{rv}"))),
    probe("replacing under another name", *given(post(MAPS, A)), put(ONE, config_map("b"))),
    probe("replacing without a name", *given(post(MAPS, A)), put(ONE, {"data": {"x": "3"}})),
    probe("replacing with another uid", *given(post(MAPS, A)), put(ONE, config_map("a", uid="other"))),
    probe("an immutable config map", *given(post(MAPS, A | {"immutable": True})),
          put(ONE, config_map("a", {"x": "2"}) | {"immutable": True}), put(ONE, A),
          put(ONE, config_map("a", {"x": "1"}, labels={"l": "1"}) | {"immutable": True})),
    probe("deleting", *given(post(MAPS, A)), delete(ONE), get(ONE)),
    probe("deleting a pod", *given(post(PODS, pod("p"))), delete(f"{PODS}/p"), get(f"{PODS}/p")),
    probe(
        "deleting a pod that is on a node",
        *given(post(PODS, pod("p", nodeName="n"))),
        delete(f"{PODS}/p", show=("metadata.deletionGracePeriodSeconds", "metadata.generation")),
        get(f"{PODS}/p", show=("metadata.deletionGracePeriodSeconds",)),
        delete(f"{PODS}/p", gracePeriodSeconds=5, show=("metadata.deletionGracePeriodSeconds",)),
        delete(f"{PODS}/p", gracePeriodSeconds=0, show=("metadata.deletionGracePeriodSeconds",)),
        get(f"{PODS}/p"),
    ),
    probe("deleting another uid", *given(post(MAPS, A)), delete(ONE, {"preconditions": {"uid": "other"}})),
    probe("deleting an old version", *given(post(MAPS, A, take=TAKE), put(ONE, config_map("a", {"x": "2"}))),
          delete(ONE, {"preconditions": {"resourceVersion": "{rv}"}})),
    probe("deleting what the preconditions name", *given(post(MAPS, A, take=TAKE)),
          delete(ONE, {"preconditions": {"uid": "{uid}", "resourceVersion": "{rv}"}})),
    probe("deleting with a negative grace", *given(post(MAPS, A)), delete(ONE, gracePeriodSeconds="-5")),
    probe("dry runs of all verbs", post(MAPS, A, dryRun="All"), get(ONE), given(post(MAPS, A)),
          put(ONE, config_map("a", {"x": "2"}), dryRun="All"), delete(ONE, dryRun="All"), get(ONE)),
    probe("a dry run in the delete options", *given(post(MAPS, A)), delete(ONE, {"dryRun": ["All"]}),
          get(ONE)),
    probe("only metadata", *given(post(MAPS, A)),
          get(ONE, accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
          get(MAPS, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
              show=("kind", "apiVersion"))),
    probe("pretty answers are the same", *given(post(MAPS, A)), get(ONE, pretty="true", accept=JSON)),
)  # fmt: skip
