"""JSON, merge and strategic merge patches."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

A = config_map("a", {"x": "1", "y": "2"})
MADE = given(post(MAPS, A, take=TAKE))
DATA = ("data", "metadata.labels")


def json_patch(name: str, *operations: object) -> Probe:
    return probe(f"json patch: {name}", *MADE, patch("json", ONE, list(operations), show=DATA))


def merge(name: str, change: object, **more: object) -> Probe:
    return probe(f"merge patch: {name}", *MADE, patch("merge", ONE, change, **more))


def strategic(name: str, change: object, *show: str) -> Probe:
    made = given(post(DEPLOYMENTS, deployment("d")))
    shown = show or ("spec.template.spec.containers",)
    return probe(f"strategic patch: {name}", *made, patch("strategic", DEPLOYMENT, change, show=shown))


PROBES: tuple[Probe, ...] = (
    json_patch("add", {"op": "add", "path": "/data/z", "value": "3"}),
    json_patch("add without a parent", {"op": "add", "path": "/metadata/labels/z", "value": "3"}),
    json_patch("remove", {"op": "remove", "path": "/data/x"}),
    json_patch("remove what is not there", {"op": "remove", "path": "/data/none"}),
    json_patch("replace", {"op": "replace", "path": "/data/x", "value": "9"}),
    json_patch("replace what is not there", {"op": "replace", "path": "/data/none", "value": "9"}),
    json_patch("move", {"op": "move", "from": "/data/x", "path": "/data/w"}),
    json_patch("copy", {"op": "copy", "from": "/data/x", "path": "/data/w"}),
    json_patch("a test that holds", {"op": "test", "path": "/data/x", "value": "1"}),
    json_patch("a test that fails", {"op": "test", "path": "/data/x", "value": "2"}),
    json_patch("a test of what is not there", {"op": "test", "path": "/data/none", "value": "2"}),
    json_patch("a test for nothing", {"op": "test", "path": "/data/none", "value": None}),
    json_patch("an unknown operation", {"op": "grow", "path": "/data/x"}),
    json_patch("no path", {"op": "remove"}),
    json_patch("escapes", {"op": "add", "path": "/metadata/labels", "value": {"a.b/c": "1"}},
               {"op": "replace", "path": "/metadata/labels/a.b~1c", "value": "2"}),
    json_patch("the name", {"op": "replace", "path": "/metadata/name", "value": "b"}),
    json_patch("the kind", {"op": "replace", "path": "/kind", "value": "Secret"}),
    json_patch("a number among texts", {"op": "add", "path": "/data/z", "value": 3}),
    json_patch("an unknown field", {"op": "add", "path": "/bogus", "value": 3}),
    probe(
        "json patch: an index",
        *given(post(PODS, pod("p", tolerations=[{"key": "a"}, {"key": "b"}]))),
        *(
            patch("json", POD, [{"op": "add", "path": f"/spec/tolerations/{index}", "value": {"key": "c"}}],
                  show=("spec.tolerations",))
            for index in "-9"
        ),
    ),
    probe("json patch: of nothing", patch("json", ONE, [])),
    probe("json patch: empty", *MADE, patch("json", ONE, [])),
    merge("a change", {"data": {"x": "9", "y": None}}),
    merge("no change", {"data": {"x": "1"}}),
    merge("nothing", {}),
    merge("of the old version", {"metadata": {"resourceVersion": "1"}, "data": {"x": "9"}}),
    merge("of this version", {"metadata": {"resourceVersion": "{rv}"}, "data": {"x": "9"}}),
    merge("of another uid", {"metadata": {"uid": "other"}}),
    merge("of this uid", {"metadata": {"uid": "{uid}"}, "data": {"x": "9"}}),
    merge("of the name", {"metadata": {"name": "b"}}),
    merge("of the namespace", {"metadata": {"namespace": "b"}}),
    merge("a number among texts", {"data": {"x": 9}}),
    merge("a list where a map is", {"data": ["x"]}),
    merge("an unknown field", {"bogus": {"x": 9}}),
    merge("an unknown field, strictly", {"bogus": {"x": 9}}, fieldValidation="Strict"),
    merge("a list", [1]),
    merge("no JSON", Raw("{")),
    merge("a deletion mark", {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}),
    merge("a creation time", {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
    merge("a generation", {"metadata": {"generation": 9}}),
    merge("no labels", {"metadata": {"labels": None, "annotations": {}}}),
    merge("a bad label", {"metadata": {"labels": {"x": "b c"}}}),
    merge("force", {"data": {"x": "9"}}, force="true"),
    merge("under a name", {"data": {"x": "9"}}, fieldManager="somebody"),
    probe("merge patch: of nothing", patch("merge", ONE, {"data": {"x": "9"}})),
    probe("a patch of an unknown kind", *MADE, patch("merge", ONE, {}, media="application/json")),
    probe("a strategic patch of a custom resource", *stored({"replicas": 1}),
          patch("strategic", THING, {"spec": {"replicas": 2}})),
    probe(
        "a merge patch of a custom resource",
        *stored({"replicas": 1, "note": "x"}),
        patch("merge", THING, {"spec": {"replicas": 2, "note": None}}),
        patch("merge", THING, {"spec": {"replicas": "two"}}),
        patch("merge", THING, {"spec": {"bogus": 1}}, fieldValidation="Strict"),
        patch("merge", THING, {"status": {"phase": "x"}}, show=("status", "metadata.generation")),
    ),
    probe(
        "a json patch of a custom resource",
        *stored({"replicas": 1}),
        patch("json", THING, [{"op": "replace", "path": "/spec/replicas", "value": 5}],
              show=("spec", "metadata.generation")),
        patch("json", THING, [{"op": "test", "path": "/spec/replicas", "value": 4}]),
        patch("json", THING, [{"op": "remove", "path": "/spec"}], show=("spec",)),
    ),
    strategic("containers by name", template(containers=[{"name": "main", "image": "other"}])),
    strategic("a second container", template(containers=[{"name": "side", "image": "other"}])),
    strategic("a container without its key", template(containers=[{"image": "other"}])),
    strategic("a container goes",
              template(containers=[{"name": "side", "image": "i"}, {"name": "main", "$patch": "delete"}])),
    strategic("all containers replaced",
              template(containers=[{"name": "side", "image": "i"}, {"$patch": "replace"}])),
    strategic("env by name", template(containers=[{"name": "main", "env": [{"name": "A", "value": "1"}]}])),
    strategic("tolerations are atomic", template(tolerations=[{"key": "a"}]),
              "spec.template.spec.tolerations"),
    strategic("a strategy with other keys",
              {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, "spec.strategy"),
    strategic("a strategy that does not fit", {"spec": {"strategy": {"type": "Recreate"}}}, "spec.strategy"),
    strategic("an order of containers",
              template(containers=[{"name": "side", "image": "i"}],
                       **{"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]})),
    strategic("a field goes", {"spec": {"paused": None}}, "spec.paused", "metadata.generation"),
    strategic("a directive nobody knows", {"spec": {"$patch": "grow"}}, "spec.paused"),
    strategic("an unknown field", {"spec": {"bogus": 1}}, "spec.paused"),
    strategic("a wrong type", {"spec": {"replicas": "two"}}, "spec.paused"),
    strategic("the selector", {"spec": {"selector": {"matchLabels": {"app": "other"}}}}, "spec.selector"),
    probe(
        "strategic patch: finalizers are a set",
        *given(post(MAPS, config_map("a", finalizers=["a.example.com/x"]))),
        *(
            patch(kind, ONE, {"metadata": change}, show=("metadata.finalizers",))
            for kind, change in (
                ("strategic", {"finalizers": ["b.example.com/y"]}),
                ("strategic", {"$deleteFromPrimitiveList/finalizers": ["a.example.com/x"]}),
                ("merge", {"finalizers": []}),
            )
        ),
    ),
    probe("strategic patch: ports of a service", *given(post(SERVICES, service("s"))),
          patch("strategic", f"{SERVICES}/s",
                {"spec": {"ports": [{"port": 80, "name": "web"}, {"port": 81, "name": "b"}]}},
                show=("spec.ports",))),
    probe(
        "strategic patch: conditions of a pod",
        *given(post(PODS, pod("p"))),
        *(
            patch("strategic", f"{POD}/status", {"status": conditions(**{name: "True"})},
                  show=("status.conditions",))
            for name in "AB"
        ),
    ),
)  # fmt: skip
