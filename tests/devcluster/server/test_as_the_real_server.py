"""Answers that were recorded from a real API server (1.35), request by request."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server import ApiServer
from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.store import Store, Type
from tests.kit.devcluster.api import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    THING_SCHEMA,
    THINGS,
    Api,
    client,
    config_map,
    pod,
    thing,
)

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def mounting(volume: dict[str, Any], **mount: Any) -> dict[str, Any]:
    """A pod with one volume, mounted."""
    main = {"name": "main", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    return pod("p", containers=[main], volumes=[{"name": "v", **volume}])


def item(path: str) -> dict[str, Any]:
    return {"items": [{"key": "k", "path": path}]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"uid": "other"}, "metadata.uid"),
        ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, "metadata.deletionTimestamp"),
        ({"deletionGracePeriodSeconds": 3}, "metadata.deletionGracePeriodSeconds"),
    ],
)
async def test_a_patch_may_not_touch_identity_or_deletion(
    api: Api, change: dict[str, Any], field: str
) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    reply = await api.patch(f"{CONFIG_MAPS}/a", {"metadata": change})
    assert (reply.code, reply.body["details"]["causes"][0]["field"]) == (422, field)
    assert "field is immutable" in reply.message


async def test_a_put_for_another_uid_is_a_conflict(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    body = config_map("a") | {"metadata": {"name": "a", "uid": "other"}}
    assert (await api.put(f"{CONFIG_MAPS}/a", body)).reason == "Conflict"


@pytest.mark.parametrize("reset", [[], [{}]])
async def test_managed_fields_can_be_dropped_and_an_apply_begins_them_again(
    things: Api, reset: list[dict[str, Any]]
) -> None:
    await things.post(THINGS, thing("one", replicas=1))
    path = f"{THINGS}/one"
    cleared = await things.patch(path, {"metadata": {"managedFields": reset}})
    assert "managedFields" not in cleared.body["metadata"]
    changed = await things.patch(path, {"spec": {"replicas": 2}})
    assert "managedFields" not in changed.body["metadata"]
    applied = await things.apply(path, thing("one", replicas=2), "me")
    book = {entry["manager"]: entry["operation"] for entry in applied.body["metadata"]["managedFields"]}
    assert book == {"me": "Apply", "before-first-apply": "Update"}
    assert (await things.apply(path, thing("one", replicas=3), "me")).code == 409


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"replicas": 1, "bogus": 1}, ".spec.bogus: field not declared in schema"),
        (
            {"replicas": 1, "parts": [{"size": 1}]},
            ".spec.parts: element 0: associative list with keys has an",
        ),
        (
            {"replicas": 1, "parts": [{"name": "q"}, {"name": "q"}]},
            '.spec.parts: duplicate entries for key [name="q"]',
        ),
        ({"replicas": 1, "tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
    ],
)
async def test_an_apply_that_cannot_be_typed_changes_nothing(
    things: Api, spec: dict[str, Any], problem: str
) -> None:
    reply = await things.apply(f"{THINGS}/one", thing("one", **spec))
    assert (reply.code, reply.reason) == (500, "")
    assert reply.message.startswith("failed to create typed patch object (/one; example.com/v1, Kind=Thing)")
    assert problem in reply.message
    assert (await things.get(f"{THINGS}/one")).code == 404


async def test_an_apply_to_status_says_nothing_about_the_spec(things: Api) -> None:
    await things.apply(f"{THINGS}/one", thing("one", replicas=1), "spec")
    body = thing("one", replicas=9) | {"status": {"ready": 1}}
    reply = await things.apply(f"{THINGS}/one/status", body, "status")
    assert (reply.code, reply.body["spec"]["replicas"], reply.body["status"]) == (200, 1, {"ready": 1})


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


@pytest.mark.parametrize(
    ("name", "code"), [("../../x", 422), ("..", 422), ("a/b", 422), ("..x", 422), ("", 422), ("a.b-c_D", 201)]
)
async def test_keys_are_names_of_files(api: Api, name: str, code: int) -> None:
    assert (await api.post(CONFIG_MAPS, config_map("a", **{name: "1"}))).code == code
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {name: "1"}}
    assert (await api.post("/api/v1/namespaces/default/secrets", secret)).code == code


@pytest.mark.parametrize(
    ("body", "field"),
    [
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
    ],
)
async def test_paths_of_volumes_stay_inside(api: Api, body: dict[str, Any], field: str) -> None:
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


async def test_requests_that_mean_nothing(things: Api) -> None:
    await things.post(CONFIG_MAPS, config_map("a"))
    answers = {
        "post to a name": await things.post(f"{CONFIG_MAPS}/a", config_map("a")),
        "get from the future": await things.get(f"{CONFIG_MAPS}/a", resourceVersion="999999"),
        "unknown propagation": await things.delete(f"{CONFIG_MAPS}/a", propagationPolicy="Bogus"),
        "watch for a word": await things.get(CONFIG_MAPS, watch="1", timeoutSeconds="soon"),
        "version of other digits": await things.get(CONFIG_MAPS, resourceVersion="²"),
        "no kind": await things.post(THINGS, {"apiVersion": "example.com/v1", "metadata": {"name": "x"}}),
        "no version": await things.post(THINGS, {"kind": "Thing", "metadata": {"name": "x"}}),
    }
    assert {name: reply.code for name, reply in answers.items()} == {
        "post to a name": 405,
        "get from the future": 504,
        "unknown propagation": 422,
        "watch for a word": 400,
        "version of other digits": 400,
        "no kind": 400,
        "no version": 400,
    }


async def test_a_watch_ends_when_its_resource_is_no_longer_served(things: Api) -> None:
    created = await things.post(THINGS, thing("one", replicas=1))
    since = created.body["metadata"]["resourceVersion"]
    async with things.watch(THINGS, resourceVersion=since) as events:
        await things.delete(f"{CRDS}/things.example.com")
        assert [event["type"] async for event in events] == ["DELETED"]


async def test_a_token_ends_with_its_service_account(server: ApiServer, api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    await api.post(ACCOUNTS, account)
    token = (await api.post(f"{ACCOUNTS}/robot/token", request)).body["status"]["token"]
    async with client(server, token) as robot:
        assert (await robot.get(CONFIG_MAPS)).code == 200
        await api.delete(f"{ACCOUNTS}/robot")
        await api.post(ACCOUNTS, account)
        assert (await robot.get(CONFIG_MAPS)).code == 401


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
