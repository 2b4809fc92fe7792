"""status, scale, generation, finalizers and the other halves of an object."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

D, FIRST = DEPLOYMENT, thing("one", {"replicas": 1})
MADE = stored({"replicas": 1})
SHORT = ("metadata.generation", "spec", "status")
FROM_RV = {"name": "one", "resourceVersion": "{rv}"}
HELD = config_map("a", {"x": "1"}, finalizers=["example.com/hold"])


def bound_to(node: str) -> Step:
    return post(f"{POD}/binding", body("Binding", "p", target={"kind": "Node", "name": node}))


def finalized(*finalizers: str) -> Step:
    namespace = body("Namespace", "{ns}", spec={"finalizers": list(finalizers)})
    return put(f"{NAMESPACES}/{{ns}}/finalize", namespace, show=("spec", "status"))


def token_of(account: str, **spec: int) -> Step:
    request = review("authentication", "TokenRequest") | {"spec": spec}
    return post(f"{CORE}/serviceaccounts/{account}/token", request)


def scaled_by(spec: str, status: str) -> Body:
    return definition(subresources={"scale": {"specReplicasPath": spec, "statusReplicasPath": status}})


EVICTION = body("Eviction", "p", "policy/v1")


PROBES: tuple[Probe, ...] = (
    probe("status is dropped on create", *defined(),
          post(THINGS, thing("one", {"replicas": 1}, status={"phase": "x"}))),
    probe("status is kept without the subresource", *defined(subresources={}),
          post(THINGS, thing("one", {"replicas": 1}, status={"phase": "x"})),
          patch("merge", THING, {"status": {"phase": "y"}}, show=SHORT), get(f"{THING}/status"),
          get(f"{THING}/scale")),
    probe("status by its subresource", *MADE,
          put(f"{THING}/status",
              FIRST | {"metadata": FROM_RV, "spec": {"replicas": 9}, "status": {"phase": "x"}}),
          get(f"{THING}/status")),
    probe("status by the main resource", *MADE,
          patch("merge", THING, {"status": {"phase": "x"}}, show=SHORT)),
    probe("labels by status", *MADE,
          patch("merge", f"{THING}/status",
                {"metadata": {"labels": {"a": "b"}, "finalizers": ["a.example.com/b"]},
                 "status": {"phase": "x"}})),
    probe("a bad status", *MADE, patch("merge", f"{THING}/status", {"status": {"replicas": "x"}})),
    probe("status of a pod", *given(post(PODS, pod("p"))),
          patch("merge", f"{POD}/status", {"status": {"phase": "Running", "podIP": "10.0.0.1"}},
                show=("status", "metadata.generation", "metadata.managedFields"))),
    probe("status of what has none", *given(post(MAPS, config_map("a"))), get(f"{MAPS}/a/status"),
          patch("merge", f"{MAPS}/a/status", {})),
    probe(
        "generation of a custom resource",
        *MADE,
        patch("merge", THING, {"metadata": {"labels": {"a": "b"}}}, show=SHORT),
        patch("merge", THING, {"spec": {"replicas": 2}}, show=SHORT),
        patch("merge", THING, {"spec": {"replicas": 2}}, show=SHORT),
        patch("merge", f"{THING}/status", {"status": {"phase": "x"}}, show=SHORT),
    ),
    probe(
        "generation of a deployment",
        *given(post(DEPLOYMENTS, deployment("d"))),
        patch("merge", D, {"metadata": {"labels": {"a": "b"}}}, show=("metadata.generation",)),
        patch("merge", D, {"spec": {"replicas": 2}}, show=("metadata.generation",)),
        patch("merge", f"{D}/scale", {"spec": {"replicas": 4}}),
        get(D, show=("metadata.generation", "spec.replicas")),
    ),
    probe(
        "scale",
        *MADE,
        get(f"{THING}/scale"),
        put(f"{THING}/scale", scale("one", 5, namespace="{ns}")),
        get(THING, show=("spec", "metadata.generation", "metadata.managedFields")),
    ),
    probe("scale of an old version", *MADE, *given(patch("merge", THING, {"spec": {"replicas": 2}})),
          put(f"{THING}/scale", scale(**FROM_RV, replicas=5, namespace="{ns}"))),
    probe("scale by patch", *MADE,
          patch("merge", f"{THING}/scale", {"spec": {"replicas": 5}}, fieldManager="scaler"),
          patch("json", f"{THING}/scale", [{"op": "replace", "path": "/spec/replicas", "value": 6}]),
          get(THING, show=("metadata.managedFields",))),
    probe("scale with status and selector", *MADE,
          *given(patch("merge", f"{THING}/status", {"status": {"replicas": 3, "selector": "a=b"}})),
          get(f"{THING}/scale")),
    probe("scale to less than nothing", *MADE, patch("merge", f"{THING}/scale", {"spec": {"replicas": -1}})),
    probe("scale out of the schema", *MADE, patch("merge", f"{THING}/scale", {"spec": {"replicas": 100}})),
    probe("scale to words", *MADE, patch("merge", f"{THING}/scale", {"spec": {"replicas": "many"}})),
    probe("scale without a size", *stored({}), get(f"{THING}/scale"),
          patch("merge", f"{THING}/scale", {"spec": {"replicas": 2}})),
    probe("scale of nothing", *defined(), get(f"{THING}/scale"),
          patch("merge", f"{THING}/scale", {"spec": {"replicas": 2}})),
    probe("scale of a deployment", *given(post(DEPLOYMENTS, deployment("d"))), get(f"{D}/scale"),
          patch("merge", f"{D}/scale", {"spec": {"replicas": -1}}),
          patch("merge", f"{D}/scale", {"spec": {"replicas": 0}})),
    probe(
        "scale by apply",
        *MADE,
        apply(f"{THING}/scale", scale("one", 5), force="true"),
        get(THING, show=("spec", "metadata.managedFields")),
    ),
    probe("a scale path that does not exist",
          post(CRDS, scaled_by(".spec.none", ".status.replicas"), show=("metadata.name",))),
    probe("a scale path that is no path", post(CRDS, scaled_by("spec", ".spec.replicas"))),
    probe("a finalizer holds", *given(post(MAPS, HELD)), delete(f"{MAPS}/a"), get(f"{MAPS}/a"),
          delete(f"{MAPS}/a"), patch("merge", f"{MAPS}/a", {"data": {"x": "2"}}, show=("data",)),
          patch("merge", f"{MAPS}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
          patch("json", f"{MAPS}/a", [{"op": "remove", "path": "/metadata/finalizers"}]), get(f"{MAPS}/a")),
    probe(
        "a finalizer of a custom resource",
        *defined(),
        *given(post(THINGS, held(FIRST, "hold"))),
        delete(THING,
               show=("metadata.finalizers", "metadata.generation", "metadata.deletionGracePeriodSeconds")),
        apply(THING, thing("one", {"replicas": 2}), force="true", show=("metadata.generation", "spec")),
        patch("merge", THING, {"metadata": {"finalizers": None}}),
        get(THING),
    ),
    probe("creating what is going", *given(post(MAPS, HELD), delete(f"{MAPS}/a")), post(MAPS, HELD),
          *given(patch("merge", f"{MAPS}/a", {"metadata": {"finalizers": None}}))),
    probe("a put that drops the last finalizer", *given(post(MAPS, HELD), delete(f"{MAPS}/a")),
          put(f"{MAPS}/a", config_map("a")), get(f"{MAPS}/a")),
    probe("a dry removal of the last finalizer", *given(post(MAPS, HELD), delete(f"{MAPS}/a")),
          patch("merge", f"{MAPS}/a", {"metadata": {"finalizers": None}}, dryRun="All"),
          get(f"{MAPS}/a", show=("metadata.finalizers",)),
          *given(patch("merge", f"{MAPS}/a", {"metadata": {"finalizers": None}}))),
    probe(
        "finalizers of a pod on a node",
        *given(post(PODS, held(pod("p", nodeName="n"), "example.com/hold"))),
        delete(POD, gracePeriodSeconds=0,
               show=("metadata.finalizers", "metadata.deletionGracePeriodSeconds")),
        patch("merge", POD, {"metadata": {"finalizers": None}}, show=("metadata.name",)),
        get(POD),
    ),
    probe("binding", *given(post(PODS, pod("p"))), bound_to("n"),
          get(POD, show=("spec.nodeName", "status.conditions")), bound_to("m")),
    probe("eviction", *given(post(PODS, pod("p"))), post(f"{POD}/eviction", EVICTION), get(POD),
          post(f"{POD}/eviction", EVICTION)),
    probe(
        "resize",
        *given(post(PODS, pod("p", containers=[container(image="i", resources={"requests": {"cpu": "1"}})]))),
        patch("strategic", f"{POD}/resize",
              {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}},
              show=("spec.containers", "metadata.generation")),
        patch("strategic", f"{POD}/resize", {"spec": {"containers": [{"name": "main", "image": "other"}]}}),
    ),
    probe("a token of a service account", token_of("default", expirationSeconds=60), token_of("none")),
    probe("finalizing a namespace", finalized("kubernetes", "example.com/x"), finalized("kubernetes")),
)  # fmt: skip
