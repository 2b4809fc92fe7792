"""What kubectl sends: apply, diff, edit, replace, label, scale, set image, rollout, wait, explain, get -w."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from typing import Any

from tests.conformance.objects import *
from tests.conformance.probe import *

A = config_map("a", {"x": "1"})
ONE, THING, D, POD = f"{MAPS}/a", f"{THINGS}/one", f"{DEPLOYMENTS}/d", f"{PODS}/p"
TAKE = {"rv": "metadata.resourceVersion", "uid": "metadata.uid"}
LAST = "kubectl.kubernetes.io/last-applied-configuration"
CSA = {"fieldManager": "kubectl-client-side-apply", "fieldValidation": "Strict"}
META = ("metadata.labels", "metadata.annotations", "metadata.managedFields")
SIZE = ("spec.replicas", "metadata.generation", "metadata.managedFields")


def applied(body: dict[str, Any], last: str) -> dict[str, Any]:
    """A body as a client-side apply sends it first."""
    return body | {"metadata": body["metadata"] | {"annotations": {LAST: last}}}


def scaled(name: str, replicas: int, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": name, "namespace": "{ns}", **metadata},
        "spec": {"replicas": replicas},
    }


PROBES: tuple[Probe, ...] = (
    probe("apply --server-side, and again", apply(ONE, A, "kubectl", fieldValidation="Strict"),
          apply(ONE, A, "kubectl", fieldValidation="Strict"),
          apply(ONE, config_map("a", {"y": "2"}), "kubectl", fieldValidation="Strict")),
    probe("apply --server-side --force-conflicts", *given(post(MAPS, A)),
          apply(ONE, config_map("a", {"x": "2"}), "kubectl", fieldValidation="Strict", force="false"),
          apply(ONE, config_map("a", {"x": "2"}), "kubectl", fieldValidation="Strict", force="true")),
    probe("apply --server-side of what was applied by the client",
          *given(post(MAPS, applied(A, "{}"), **CSA)),
          apply(ONE, config_map("a", {"x": "2"}), "kubectl", fieldValidation="Strict")),
    probe("apply --server-side of an unknown field",
          apply(ONE, A | {"bogus": 1}, "kubectl", fieldValidation="Strict"),
          apply(D, deployment("d", bogus=1), "kubectl", fieldValidation="Strict")),
    probe("apply --server-side of a custom resource", *defined(),
          apply(THING, thing("one", {"replicas": 1}), "kubectl", fieldValidation="Strict"),
          apply(THING, thing("one", {"replicas": 1, "bogus": 1}), "kubectl", fieldValidation="Strict"),
          apply(THING, thing("one", {"note": "x"}), "kubectl", fieldValidation="Strict", show=("spec",))),
    probe("apply by the client", get(ONE), post(MAPS, applied(A, "1"), **CSA),
          patch("strategic", ONE, {"data": {"x": "2"}, "metadata": {"annotations": {LAST: "2"}}}, **CSA),
          patch("strategic", ONE, {"data": {"x": None}, "metadata": {"annotations": {LAST: "3"}}}, **CSA)),
    probe("apply by the client of a custom resource", *defined(),
          post(THINGS, applied(thing("one", {"replicas": 1}), "1"), **CSA, show=("spec",)),
          patch("merge", THING, {"spec": {"replicas": None, "note": "x"}}, **CSA, show=("spec", *META))),
    probe("diff --server-side of a new object", apply(ONE, A, "kubectl", dryRun="All", force="true"),
          get(ONE)),
    probe("diff --server-side of a change", *given(post(MAPS, A)),
          apply(ONE, config_map("a", {"x": "2"}), "kubectl", dryRun="All", force="true"),
          apply(ONE, config_map("a", {"x": "2"}), "kubectl", dryRun="All"), get(ONE, show=("data",))),
    probe("diff by the client", *given(post(MAPS, A)),
          patch("strategic", ONE, {"data": {"x": "2"}}, dryRun="All"),
          post(MAPS, config_map("b"), dryRun="All")),
    probe("edit", *given(post(MAPS, A, take=TAKE)),
          patch("strategic", ONE, {"data": {"x": "2"}, "metadata": {"resourceVersion": "{rv}"}}, **CSA),
          patch("strategic", ONE, {"data": {"x": "3"}, "metadata": {"resourceVersion": "{rv}"}}, **CSA)),
    probe(
        "edit a custom resource",
        *defined(),
        *given(post(THINGS, thing("one", {"replicas": 1}), take=TAKE)),
        patch("merge", THING, {"spec": {"replicas": 2}, "metadata": {"resourceVersion": "{rv}"}}, show=SIZE),
        patch("merge", THING, {"spec": {"replicas": 3}, "metadata": {"resourceVersion": "{rv}"}}),
        patch("merge", THING, {"spec": {"replicas": "x"}}),
    ),
    probe("replace without a version", *given(post(MAPS, A)),
          put(ONE, config_map("a", {"x": "2"}), fieldManager="kubectl-replace", fieldValidation="Strict")),
    probe("replace a custom resource without a version", *defined(),
          *given(post(THINGS, thing("one", {"replicas": 1}))),
          put(THING, thing("one", {"replicas": 2}), fieldManager="kubectl-replace")),
    probe("replace a deployment by less", *given(post(DEPLOYMENTS, deployment("d", replicas=3))),
          put(D, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
          put(D, deployment("d"), show=SIZE)),
    probe("replace --force", *given(post(MAPS, A, take=TAKE)),
          delete(ONE, {"propagationPolicy": "Background", "gracePeriodSeconds": 0}),
          post(MAPS, config_map("a", {"x": "2"}))),
    probe("replace --force of a pod on a node", *given(post(PODS, pod("p", nodeName="n"))),
          delete(POD, {"propagationPolicy": "Background", "gracePeriodSeconds": 0}, show=("metadata.name",)),
          get(POD)),
    probe(
        "label and annotate",
        *given(post(MAPS, A)),
        patch("merge", ONE, {"metadata": {"labels": {"a": "1"}}}, fieldManager="kubectl-label"),
        patch("merge", ONE, {"metadata": {"labels": {"a": None, "b": "2"}}}, fieldManager="kubectl-label"),
        patch("merge", ONE, {"metadata": {"annotations": {"n": "1"}}}, fieldManager="kubectl-annotate"),
        patch("merge", ONE, {"metadata": {"labels": None}}, show=META),
    ),
    probe("scale of another uid", *given(post(DEPLOYMENTS, deployment("d"), take=TAKE)),
          put(f"{D}/scale", scaled("d", 3, uid="{uid}"), show=("spec",)),
          put(f"{D}/scale", scaled("d", 4, uid="other"))),
    probe(
        "scale --current-replicas",
        *defined(),
        *given(post(THINGS, thing("one", {"replicas": 1}))),
        get(f"{THING}/scale", take=TAKE),
        put(f"{THING}/scale", scaled("one", 3, resourceVersion="{rv}", uid="{uid}")),
        put(f"{THING}/scale", scaled("one", 4, resourceVersion="{rv}", uid="{uid}")),
        put(f"{THING}/scale", scaled("one", 4, uid="other")),
        get(THING, show=SIZE),
    ),
    probe(
        "scale",
        *given(post(DEPLOYMENTS, deployment("d"))),
        patch("merge", f"{D}/scale", {"spec": {"replicas": 2}}, fieldManager="kubectl"),
        patch("merge", f"{D}/scale", {"spec": {"replicas": "two"}}, fieldManager="kubectl"),
        patch("strategic", f"{D}/scale", {"spec": {"replicas": 5}}, fieldManager="kubectl"),
        get(D, show=SIZE),
    ),
    probe("set image", *given(post(DEPLOYMENTS, deployment("d"))),
          patch("strategic", D,
                {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i:2"}]}}}},
                fieldManager="kubectl-set", show=("spec.template.spec.containers", *SIZE))),
    probe("rollout restart", *given(post(DEPLOYMENTS, deployment("d", paused=False, replicas=0))),
          patch("strategic", D, {"spec": {"template": {"metadata": {"annotations": {"restartedAt": "now"}}}}},
                fieldManager="kubectl-rollout", show=("spec.template.metadata", "metadata.generation"))),
    probe("patch --subresource=status", *given(post(DEPLOYMENTS, deployment("d"))),
          patch("strategic", f"{D}/status", {"spec": {"replicas": 9}}, show=("spec.replicas",)),
          patch("merge", f"{D}/status", {"status": {"replicas": "x"}})),
    probe(
        "a status by apply, beside a spec by apply",
        *defined(),
        apply(THING, thing("one", {"replicas": 1}), "kubectl"),
        apply(f"{THING}/status", thing("one", status={"phase": "x"}), "operator"),
        apply(THING, thing("one", {"replicas": 2}, status={"phase": "y"}), "kubectl"),
        apply(f"{THING}/status", thing("one", {"replicas": 9}, status={"replicas": 2}), "operator"),
        get(THING),
    ),
    probe(
        "conditions by two who apply",
        *defined(),
        *given(post(THINGS, thing("one", {"replicas": 1}))),
        apply(
            f"{THING}/status",
            thing("one", status={"conditions": [{"type": "A", "status": "True"}]}),
            "first",
            show=("status",),
        ),
        apply(
            f"{THING}/status",
            thing("one", status={"conditions": [{"type": "B", "status": "True"}]}),
            "second",
            show=("status",),
        ),
        apply(
            f"{THING}/status",
            thing("one", status={"conditions": [{"type": "A", "status": "False"}]}),
            "second",
        ),
        apply(f"{THING}/status", thing("one", status={"conditions": []}), "first", show=("status",)),
    ),
    probe("wait for a deletion", *given(post(MAPS, A, take=TAKE)),
          watch(MAPS, 1, fieldSelector="metadata.name=a", resourceVersion="{rv}",
                meanwhile=(delete(ONE, {"preconditions": {"uid": "{uid}"}}, show=()),))),
    probe("get -w --output-watch-events as a table", *given(post(MAPS, A, take=TAKE)),
          watch(MAPS, 2, fieldSelector="metadata.name=a", resourceVersion="{rv}", accept=TABLE,
                meanwhile=(patch("merge", ONE, {"data": {"y": "2"}}, show=()), delete(ONE, show=())))),
    probe("get -w of metadata", *given(post(MAPS, A, take=TAKE)),
          watch(MAPS, 1, fieldSelector="metadata.name=a", resourceVersion="{rv}", accept=PARTIAL,
                meanwhile=(patch("merge", ONE, {"data": {"y": "2"}}, show=()),))),
    probe("get several kinds that are empty", get(PODS, accept=TABLE, labelSelector="none", limit=500),
          get(SERVICES, accept=TABLE, labelSelector="none", limit=500),
          get(DEPLOYMENTS, accept=TABLE, labelSelector="none", limit=500)),
    probe(
        "get a deployment and a service as tables",
        *given(post(DEPLOYMENTS, deployment("d")), post(SERVICES, service("s"))),
        get(D, accept=TABLE, show=("columnDefinitions", "rows.0.cells.0", "rows.0.cells.1")),
        get(f"{SERVICES}/s", accept=TABLE, show=("columnDefinitions", "rows.0.cells.0", "rows.0.cells.1")),
        get(f"{NAMESPACES}/{{ns}}", accept=TABLE),
    ),
    probe(
        "create a secret and read it as a table",
        post(
            SECRETS,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "s"},
                "stringData": {"a": "b"},
                "data": {"a": "eA==", "c": "eQ=="},
            },
            fieldManager="kubectl-create",
            fieldValidation="Strict",
        ),
        get(f"{SECRETS}/s", accept=TABLE),
    ),
    probe("create --dry-run=server",
          post(DEPLOYMENTS, deployment("d"), dryRun="All", fieldManager="kubectl-create",
               show=("spec", *META)), get(D)),
    probe("delete --cascade=orphan and --now",
          *given(post(DEPLOYMENTS, deployment("d")), post(PODS, pod("p", nodeName="n"))),
          delete(D, {"propagationPolicy": "Orphan"}, show=("metadata.finalizers", "metadata.generation")),
          delete(POD, {"gracePeriodSeconds": 1}, show=("metadata.deletionGracePeriodSeconds",))),
    probe(
        "json patch: other kinds",
        *given(post(MAPS, A)),
        patch("json", ONE, [{"op": "replace", "path": "/kind", "value": "Pod"}]),
        patch("json", ONE, [{"op": "replace", "path": "/kind", "value": "Nothing"}]),
        patch("json", ONE, [{"op": "replace", "path": "/kind", "value": ""}]),
        patch("json", ONE, [{"op": "replace", "path": "/apiVersion", "value": "v2"}]),
        patch("json", ONE, [{"op": "replace", "path": "/kind", "value": "Service"}]),
        patch("merge", ONE, {"kind": "Endpoints"}),
        patch("merge", ONE, {"kind": None}, show=("kind",)),
        patch("strategic", ONE, {"kind": "Pod"}, show=("kind",)),
    ),
    probe("strategic patch: bytes", *given(post(SECRETS, {"metadata": {"name": "s"}, "data": {"a": "eA=="}})),
          patch("strategic", f"{SECRETS}/s", {"data": {"a": "no!"}}),
          patch("strategic", f"{SECRETS}/s", {"data": {"a": 5}}),
          patch("strategic", f"{SECRETS}/s", {"stringData": {"a": "plain"}}, show=("data",))),
    probe("explain",
          *defined({"type": "object", "properties": {k: SPEC["properties"][k] for k in ("replicas",)}}),
          get("/openapi/v3", show=("paths.api/v1.bogus",)), get("/openapi/v3/apis/nothing.example.com/v1")),
    probe("annotations as large as they may be",
          post(MAPS, config_map("a", annotations={"a": "b" * (262144 - 1)}), show=("metadata.name",)),
          patch("merge", ONE, {"metadata": {"annotations": {"b": "c"}}})),
)  # fmt: skip
