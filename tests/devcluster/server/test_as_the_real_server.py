"""Answers that were recorded from a real API server (1.35), request by request."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.store import Store, Type
from tests.kit.devcluster.api import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    THING_SCHEMA,
    THINGS,
    Api,
    config_map,
    pod,
    thing,
)


def mounting(volume: dict[str, Any], **mount: Any) -> dict[str, Any]:
    """A pod with one volume, mounted."""
    main = {"name": "main", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    return pod("p", containers=[main], volumes=[{"name": "v", **volume}])


def item(path: str) -> dict[str, Any]:
    return {"items": [{"key": "k", "path": path}]}


async def test_nulls_of_fields_that_may_be_absent(things: Api) -> None:
    body = thing("one", replicas=1, when=None, labels={"a": None, "b": "c"}, tags=None)
    body["metadata"] |= {"creationTimestamp": None, "annotations": None}
    reply = await things.post(THINGS, body)
    assert (reply.code, reply.body["spec"]) == (201, {"replicas": 1, "labels": {"b": "c"}, "mode": "fast"})
    condition = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    await things.post(PODS, pod("p") | {"metadata": {"name": "p", "creationTimestamp": None}})
    for kind in ("merge", "strategic"):
        reply = await things.patch(f"{PODS}/p/status", {"status": {"conditions": [condition]}}, kind)
        assert reply.code == 200
        assert reply.body["status"]["conditions"][0]["status"] == "True"


async def test_keys_are_names_of_files(api: Api) -> None:
    for name, code in {"../../x": 422, "..": 422, "a/b": 422, "..x": 422, "": 422, "a.b-c_D": 201}.items():
        assert (await api.post(CONFIG_MAPS, config_map("a", **{name: "1"}))).code == code
        secret = {"metadata": {"name": "a"}, "stringData": {name: "1"}}
        assert (await api.post("/api/v1/namespaces/default/secrets", secret)).code == code


async def test_paths_of_volumes_stay_inside(api: Api) -> None:
    outside = [
        (mounting({"emptyDir": {}}, subPath="../x"), "spec.containers[0].volumeMounts[0].subPath"),
        (mounting({"emptyDir": {}}, subPathExpr="/x"), "spec.containers[0].volumeMounts[0].subPathExpr"),
        (
            mounting({"configMap": {"name": "c", **item("../../x")}}),
            "spec.volumes[0].configMap.items[0].path",
        ),
        (mounting({"secret": {"secretName": "c", **item("/x")}}), "spec.volumes[0].secret.items[0].path"),
        (
            mounting({"projected": {"sources": [{"secret": {"name": "c", **item("a/../../x")}}]}}),
            "spec.volumes[0].projected.sources[0].secret.items[0].path",
        ),
        (mounting({"hostPath": {"path": "/a/../b"}}), "spec.volumes[0].hostPath.path"),
    ]
    for body, field in outside:
        reply = await api.post(PODS, body)
        assert (reply.code, [cause["field"] for cause in reply.body["details"]["causes"]]) == (422, [field])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([{"activeDeadlineSeconds": 9}], 200),
        ([{"activeDeadlineSeconds": 0}], 422),
        ([{"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 8}], 200),
        ([{"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 10}], 422),
        ([{"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": None}], 422),
        ([{"terminationGracePeriodSeconds": 3}], 422),
        ([{"tolerations": [{"key": "other", "operator": "Exists"}]}], 422),
    ],
)
async def test_what_may_change_of_a_pod(api: Api, changes: list[dict[str, Any]], code: int) -> None:
    await api.post(PODS, pod("p"))
    replies = [await api.patch(f"{PODS}/p", {"spec": change}) for change in changes]
    assert replies[-1].code == code, replies[-1].body


async def test_a_watch_ends_when_its_resource_is_no_longer_served(things: Api) -> None:
    created = await things.post(THINGS, thing("one", replicas=1))
    since = created.body["metadata"]["resourceVersion"]
    async with things.watch(THINGS, resourceVersion=since) as events:
        await things.delete(f"{CRDS}/things.example.com")
        assert [event["type"] async for event in events] == ["DELETED"]


async def test_history_is_bounded_in_bytes_too() -> None:
    store, kind = Store(), Type("", "things")
    for number in range(40):
        store.put(kind, {"metadata": {"name": f"{number}", "namespace": "n"}, "data": "x" * 1_000_000})
    with pytest.raises(StatusError, match="too old"):
        store.watch(kind, 1)
    recent = store.watch(kind, store.version - 20)
    assert [event.new.metadata["name"] for event in recent.take()] == [
        f"{number}" for number in range(20, 40)
    ]


async def test_an_evicted_pod_says_why_it_goes(api: Api) -> None:
    await api.post(PODS, pod("p", nodeName="n"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await api.post(f"{PODS}/p/eviction", eviction, dryRun="All")).code == 201
    assert "conditions" not in (await api.get(f"{PODS}/p")).body["status"]
    assert (await api.post(f"{PODS}/p/eviction", eviction)).code == 201
    left = (await api.get(f"{PODS}/p")).body
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    assert [(each["type"], each["reason"]) for each in left["status"]["conditions"]] == [
        ("DisruptionTarget", "EvictionByEvictionAPI")
    ]


async def change_schema(api: Api, **fields: Any) -> None:
    """Put fields into the schema of the spec of `things`."""
    path = f"{CRDS}/things.example.com"
    body = (await api.get(path)).body
    schema = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] |= fields
    assert (await api.put(path, body)).code == 200


async def test_a_younger_default_is_read_and_changes_no_generation(things: Api) -> None:
    before = (await things.post(THINGS, thing("one", replicas=1, note="x"))).body
    await change_schema(things, extra={"type": "string", "default": "new"})
    read = (await things.get(f"{THINGS}/one")).body
    assert read["spec"] == before["spec"] | {"extra": "new"}
    assert read["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    changed = await things.patch(f"{THINGS}/one", {"metadata": {"labels": {"a": "b"}}})
    assert (changed.body["metadata"]["generation"], changed.body["spec"]["extra"]) == (1, "new")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"metadata": {"labels": {"a": "b"}}}, 200),
        ({"spec": {"note": "other"}}, 200),
        ({"spec": {"replicas": 5}}, 422),
        ({"spec": {"parts": [{"name": "p", "size": 1}]}}, 200),
        ({"spec": {"parts": [{"name": "q", "size": 1}]}}, 422),
    ],
)
async def test_a_younger_rule_holds_for_what_changes(things: Api, change: dict[str, Any], code: int) -> None:
    await things.post(THINGS, thing("one", replicas=4, parts=[{"name": "p", "size": 1}]))
    properties = THING_SCHEMA["properties"]["spec"]["properties"]
    item = properties["parts"]["items"]
    sizes = item["properties"] | {"size": {"type": "integer", "minimum": 2}}
    parts = properties["parts"] | {"items": item | {"properties": sizes}}
    await change_schema(things, replicas=properties["replicas"] | {"maximum": 3}, parts=parts)
    assert (await things.patch(f"{THINGS}/one", change)).code == code


async def test_objects_beyond_the_limit_are_refused(api: Api) -> None:
    reply = await api.post(CONFIG_MAPS, config_map("a", x="y" * (1024 * 1024 + 1)))
    assert (reply.code, reply.reason) == (422, "Invalid")
    large = await api.post(CONFIG_MAPS, config_map("a", x="y" * 1024 * 1024))
    assert large.code == 201
