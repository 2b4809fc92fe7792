"""Server-side apply: ownership, conflicts, force, removal, keyed lists, status, uid."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *
from tests.kit.devcluster.api import MEDIA

LAST = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"1"}}'


def of(data: Any, **metadata: Any) -> dict[str, Any]:
    return config_map("a", data, **metadata)


def parts(*items: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return thing("one", {"parts": list(items), **spec})


def mine(data: Any, manager: str = "me", **more: Any) -> Step:
    return apply(ONE, of(data), manager, **more)


def hollow_deployment() -> dict[str, Any]:
    """A deployment whose configuration names maps and lists with nothing in them."""
    made = deployment("d")
    made["metadata"] |= {"labels": {}, "annotations": {}, "finalizers": []}
    made["spec"]["template"]["spec"] |= {"nodeSelector": {}, "volumes": [], "securityContext": {}}
    return made


ENV = {"name": "A", "value": "1"}
SHOWN = ("metadata.managedFields", "metadata.labels", "spec.template.spec")
PROBES: tuple[Probe, ...] = (
    probe("an apply creates", mine({"x": "1"})),
    probe("an apply of the same", mine({"x": "1"}), mine({"x": "1"})),
    probe("an apply changes its own", given(mine({"x": "1"})), mine({"x": "2"})),
    probe("an apply drops what it no longer says", given(mine({"x": "1", "y": "1"})), mine({"x": "1"})),
    probe("an apply drops all", given(mine({"x": "1"})), apply(ONE, config_map("a"))),
    probe("an apply keeps what another owns too", given(mine({"x": "1"}), mine({"x": "1"}, "you")),
          apply(ONE, of({}))),
    probe("a conflict", given(mine({"x": "1"})), mine({"x": "2"}, "you")),
    probe("two conflicts", given(mine({"x": "1", "y": "1"})), mine({"x": "2", "y": "2"}, "you")),
    probe("conflicts with two managers", given(mine({"x": "1"}), mine({"y": "1"}, "she")),
          mine({"x": "2", "y": "2"}, "you")),
    probe("force", given(mine({"x": "1", "y": "1"})), mine({"x": "2"}, "you", force="true")),
    probe("agreement is no conflict", given(mine({"x": "1"})), mine({"x": "1"}, "you")),
    probe("a conflict with an update", given(post(MAPS, of({"x": "1"}), fieldManager="writer")),
          mine({"x": "2"})),
    probe("a conflict with an update of status", *stored({"replicas": 1}),
          given(patch("merge", f"{THING}/status", {"status": {"phase": "x"}}, fieldManager="status-writer")),
          apply(f"{THING}/status", thing("one", status={"phase": "y"}))),
    probe("an update takes over", given(mine({"x": "1", "y": "1"})),
          patch("merge", ONE, {"data": {"x": "2"}}, fieldManager="writer")),
    probe("an update removes", given(mine({"x": "1", "y": "1"})),
          patch("merge", ONE, {"data": {"x": None}}, fieldManager="writer")),
    probe("no manager", patch("apply", ONE, of({"x": "1"}))),
    probe("an uid that is right", given(mine({"x": "1"}).but(take=TAKE)),
          apply(ONE, of({"x": "2"}, uid="{uid}"))),
    probe("an uid that is wrong", given(mine({"x": "1"})), apply(ONE, of({"x": "2"}, uid="other"))),
    probe("an uid of nothing", apply(ONE, of({"x": "2"}, uid="other"))),
    probe("a version that is right", given(mine({"x": "1"}).but(take=TAKE)),
          apply(ONE, of({"x": "2"}, resourceVersion="{rv}"))),
    probe("a version that is wrong", given(mine({"x": "1"})),
          apply(ONE, of({"x": "2"}, resourceVersion="1"))),
    probe("a version of nothing", apply(ONE, of({"x": "2"}, resourceVersion="1"))),
    probe("an apply without kind", apply(ONE, {"metadata": {"name": "a"}})),
    probe("an apply of another kind",
          apply(ONE, body("Secret", "a"))),
    probe("an apply of another version", apply(ONE, of({}) | {"apiVersion": "v9"})),
    probe("an apply under another name", apply(ONE, config_map("b"))),
    probe("an apply without a name",
          apply(ONE, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}})),
    probe("an apply in another namespace", apply(ONE, of({}, namespace="other"))),
    probe("an apply in YAML", apply(ONE, Raw("apiVersion: v1\nkind: ConfigMap\ndata: {x: 'yes'}\n"))),
    probe("an apply with an unknown field", apply(ONE, of({}) | {"bogus": 1})),
    probe("an apply with a wrong type", apply(ONE, of({"x": 1}))),
    probe("a dry apply", mine({"x": "1"}, dryRun="All"), mine({"x": "2"})),
    probe("an apply of a null", mine({"x": None})),
    probe("empty parts of a built-in kind", apply(DEPLOYMENT, hollow_deployment(), show=SHOWN),
          apply(DEPLOYMENT, deployment("d"), "you", show=SHOWN),
          apply(DEPLOYMENT, deployment("d"), show=SHOWN)),
    probe("an emptied map", mine({"x": "1"}), apply(ONE, of({})), apply(ONE, config_map("a"))),
    probe("an empty map is owned", apply(ONE, of({})), mine({"x": "1"}, "you")),
    probe("parts by key", *defined(), apply(THING, parts({"name": "a", "size": 1})),
          apply(THING, parts({"name": "b", "size": 2}), "you"),
          apply(THING, parts({"name": "a", "size": 3}), "you")),
    probe("a part goes", *defined(),
          given(apply(THING, parts({"name": "a", "size": 1}, {"name": "b"})),
                apply(THING, parts({"name": "b", "size": 7}), "you")), apply(THING, parts({"name": "c"}))),
    probe("orders of parts meet", *defined(), given(apply(THING, parts(*({"name": name} for name in "abc")))),
          apply(THING, parts(*({"name": name} for name in "xcya")), "you", show=("spec.parts",)),
          apply(THING, parts(*({"name": name} for name in "bz")), "she", show=("spec.parts",)),
          apply(THING, parts(*({"name": name} for name in "zb")), "she", show=("spec.parts",))),
    probe("a part without its key", *defined(), apply(THING, parts({"size": 1}))),
    probe("a part twice", *defined(), apply(THING, parts({"name": "a"}, {"name": "a"}))),
    probe("tags are a set", *defined(), given(apply(THING, thing("one", {"tags": ["b", "a"]}))),
          apply(THING, thing("one", {"tags": ["c", "a"]}), "you"),
          apply(THING, thing("one", {"tags": ["b"]}))),
    probe("a tag twice", *defined(), apply(THING, thing("one", {"tags": ["a", "a"]}))),
    probe("a plain list is atomic", *defined(), given(apply(THING, thing("one", {"plain": ["a"]}))),
          apply(THING, thing("one", {"plain": ["a", "b"]}), "you"),
          apply(THING, thing("one", {"plain": ["a", "b"]}))),
    probe("a free map is granular", *defined(), given(apply(THING, thing("one", {"free": {"a": {"b": 1}}}))),
          apply(THING, thing("one", {"free": {"a": {"c": 2}}}), "you"),
          apply(THING, thing("one", {"free": {"a": {"b": 2}}}), "you")),
    probe("defaults are nobody's", *defined(), apply(THING, thing("one", {"replicas": 1})),
          apply(THING, thing("one", {"mode": "slow"}), "you")),
    probe("an unknown field of a custom resource", *defined(), apply(THING, thing("one", {"bogus": 1})),
          apply(THING, thing("one", {"bogus": 1}), fieldValidation="Strict")),
    probe("a wrong type in a custom resource", *defined(), apply(THING, thing("one", {"replicas": "two"}))),
    probe("an invalid custom resource", *defined(), apply(THING, thing("one", {"replicas": 100}))),
    probe(
        "status by apply",
        *defined(),
        given(apply(THING, thing("one", {"replicas": 1}))),
        apply(f"{THING}/status", thing("one", status=conditions(Ready="True")), "status"),
        apply(f"{THING}/status", thing("one", status=conditions(Done="True")), "other"),
        apply(f"{THING}/status", thing("one", status={}), "status"),
    ),
    probe("a spec in a status apply", *defined(), given(apply(THING, thing("one", {"replicas": 1}))),
          apply(f"{THING}/status", thing("one", {"replicas": 9}, status={"phase": "x"}), "status")),
    probe("a status in a spec apply", *defined(),
          apply(THING, thing("one", {"replicas": 1}, status={"phase": "x"}))),
    probe("status of nothing", *defined(), apply(f"{THING}/status", thing("one", status={"phase": "x"}))),
    probe("an update of status is owned", *stored({"replicas": 1}),
          put(f"{THING}/status", thing("one", {"replicas": 5}, status={"phase": "x"}), fieldManager="s"),
          patch("merge", f"{THING}/status", {"status": {"phase": "y"}, "metadata": {"labels": {"a": "b"}}},
                fieldManager="s")),
    probe("scale and apply", given(apply(DEPLOYMENT, deployment("d"))),
          patch("merge", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}}, fieldManager="scaler"),
          apply(DEPLOYMENT, deployment("d"), show=("spec.replicas",))),
    probe(
        "client-side, then server-side",
        given(post(MAPS, applied(of({"x": "1", "y": "1"}), LAST), fieldManager="kubectl-client-side-apply")),
        apply(ONE, of({"x": "2"}), "kubectl"),
    ),
    probe("forgetting managed fields", given(mine({"x": "1"})),
          patch("merge", ONE, {"metadata": {"managedFields": [{}]}}), mine({"x": "1"})),
    probe("managed fields that mean nothing", given(mine({"x": "1"})),
          patch("merge", ONE, {"metadata": {"managedFields": [{"manager": "x", "operation": "Bogus"}]}})),
    probe(
        "deployment by two",
        apply(DEPLOYMENT, deployment("d"), show=("metadata.managedFields",)),
        apply(
            DEPLOYMENT,
            body("Deployment", "d", "apps/v1")
            | template(containers=[{"name": "main", "env": [ENV], "ports": [{"containerPort": 80}]}]),
            "you",
            show=("metadata.managedFields", "spec.template.spec.containers"),
        ),
    ),
    probe("media of an apply", given(mine({"x": "1"})),
          apply(ONE, of({"x": "2"}), media=MEDIA["apply"] + "; charset=utf-8", show=("data",))),
)  # fmt: skip
