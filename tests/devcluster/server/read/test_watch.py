"""Watches and lists: order, bookmarks, selectors, pages, versions that are too old or too new."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server import ApiServer
from tests.kit.devcluster.api import CONFIG_MAPS, PODS, THINGS, Api, config_map, pod, thing


def labelled(name: str, **labels: str) -> dict[str, Any]:
    return config_map(name) | {"metadata": {"name": name, "labels": labels}}


async def version(api: Api) -> str:
    return str((await api.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"])


async def kinds(api: Api, path: str, **query: str) -> list[tuple[str, str]]:
    """(type, name) of all events until the watch ends by itself."""
    async with api.watch(path, timeoutSeconds="0.05", **query) as events:
        return [(each["type"], each["object"]["metadata"].get("name", "")) async for each in events]


async def test_a_watch_resumes_after_a_version_with_nothing_lost(api: Api) -> None:
    since = await version(api)
    await api.post(CONFIG_MAPS, config_map("a"))
    await api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    await api.delete(f"{CONFIG_MAPS}/a")
    await api.post("/api/v1/namespaces/kube-system/configmaps", config_map("elsewhere"))
    expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert await kinds(api, CONFIG_MAPS, resourceVersion=since) == expected


async def test_a_deletion_carries_a_newer_version(api: Api) -> None:
    created = (await api.post(CONFIG_MAPS, config_map("a"))).body["metadata"]["resourceVersion"]
    await api.delete(f"{CONFIG_MAPS}/a")
    gone = await api.until(CONFIG_MAPS, "DELETED", resourceVersion=created)
    assert int(gone["metadata"]["resourceVersion"]) > int(created)


async def test_a_watch_without_version_begins_with_what_is_there(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    assert await kinds(api, CONFIG_MAPS) == [("ADDED", "a")]


async def test_initial_events_end_with_a_marked_bookmark(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    await api.post(CONFIG_MAPS, config_map("b"))
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(CONFIG_MAPS, **query) as events:
        found = [await anext(events) for _ in range(3)]
    assert [each["type"] for each in found] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = found[-1]["object"]
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["metadata"]["resourceVersion"] == found[1]["object"]["metadata"]["resourceVersion"]
    assert mark["kind"] == "ConfigMap"


async def test_initial_events_need_the_match_parameter(api: Api) -> None:
    reply = await api.get(CONFIG_MAPS, watch="1", sendInitialEvents="true")
    assert (reply.code, reply.reason) == (422, "Invalid")


async def test_bookmarks_carry_the_version_of_the_whole_server(api: Api) -> None:
    since = await version(api)
    other = (await api.post(PODS, pod("p"))).body["metadata"]["resourceVersion"]
    mark = await api.until(CONFIG_MAPS, "BOOKMARK", resourceVersion=since, allowWatchBookmarks="true")
    assert int(mark["metadata"]["resourceVersion"]) >= int(other)


async def test_no_bookmarks_unless_asked_for(api: Api) -> None:
    async with api.watch(CONFIG_MAPS, resourceVersion=await version(api), timeoutSeconds="0.2") as events:
        assert [each async for each in events] == []


async def test_versions_from_before_the_compaction_are_gone(api: Api) -> None:
    since = await version(api)
    await api.post(CONFIG_MAPS, config_map("a"))
    api.server.compact()
    reply = await api.get(CONFIG_MAPS, watch="1", resourceVersion=since)
    assert (reply.code, reply.body["type"], reply.body["object"]["code"]) == (200, "ERROR", 410)
    assert await kinds(api, CONFIG_MAPS, resourceVersion=await version(api)) == []


async def test_short_history_expires_by_itself() -> None:
    from tests.kit.devcluster.api import client

    async with ApiServer(history=2) as server:
        server.add_token("secret", "admin", ["system:masters"])
        async with client(server) as api:
            since = await version(api)
            for name in "abc":
                await api.post(CONFIG_MAPS, config_map(name))
            reply = await api.get(CONFIG_MAPS, watch="1", resourceVersion=since)
            assert (reply.body["type"], reply.body["object"]["code"]) == ("ERROR", 410)


async def test_versions_of_the_future_are_too_large(api: Api) -> None:
    reply = await api.get(CONFIG_MAPS, resourceVersion="999999")
    assert (reply.code, reply.reason) == (504, "Timeout")
    assert "Too large resource version: 999999" in reply.message
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_from_the_future_hears_nothing_of_the_past(api: Api) -> None:
    """As on the real server, whose clients find out by listing."""
    assert await kinds(api, CONFIG_MAPS, resourceVersion="999999") == []


async def test_a_selector_turns_changes_into_arrivals_and_departures(api: Api) -> None:
    since = await version(api)
    await api.post(CONFIG_MAPS, labelled("a", color="red"))
    await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"color": "blue"}}})
    await api.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "1"}})
    await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"color": "red"}}})
    await api.delete(f"{CONFIG_MAPS}/a")
    events = await kinds(api, CONFIG_MAPS, resourceVersion=since, labelSelector="color=red")
    assert [event for event, _ in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    events = await kinds(api, CONFIG_MAPS, resourceVersion=since, fieldSelector="metadata.name=b")
    assert events == []


async def test_a_table_watch_sends_its_columns_once(api: Api) -> None:
    since = await version(api)
    await api.post(CONFIG_MAPS, config_map("a", x="1"))
    await api.post(CONFIG_MAPS, config_map("b"))
    api.session.headers["Accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with api.watch(CONFIG_MAPS, resourceVersion=since) as events:
        first, second = [(await anext(events))["object"] for _ in range(2)]
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["columnDefinitions"] is None
    assert first["rows"][0]["cells"][:2] == ["a", 1]


async def test_pages_cover_the_list_once_and_name_what_remains(api: Api) -> None:
    for index in range(5):
        await api.post(CONFIG_MAPS, config_map(f"c{index}"))
    token, seen, remaining = "", [], []
    while True:
        body = (await api.get(CONFIG_MAPS, limit="2", **({"continue": token} if token else {}))).body
        seen += [item["metadata"]["name"] for item in body["items"]]
        token = body["metadata"].get("continue", "")
        remaining.append(body["metadata"].get("remainingItemCount", 0))
        if not token:
            break
    assert seen == [f"c{index}" for index in range(5)]
    assert remaining == [3, 1, 0]


async def test_a_continue_token_dies_with_the_history(api: Api) -> None:
    for name in "ab":
        await api.post(CONFIG_MAPS, config_map(name))
    token = (await api.get(CONFIG_MAPS, limit="1")).body["metadata"]["continue"]
    await api.post(CONFIG_MAPS, config_map("c"))
    api.server.compact()
    reply = await api.get(CONFIG_MAPS, limit="1", **{"continue": token})
    assert (reply.code, reply.reason) == (410, "Expired")
    assert (await api.get(CONFIG_MAPS, **{"continue": "abc"})).code == 400


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("color=red", ["a"]),
        ("color!=red", ["b", "c"]),
        ("color in (red, blue)", ["a", "b"]),
        ("color notin (red)", ["b", "c"]),
        ("color", ["a", "b"]),
        ("!color", ["c"]),
        ("color=red,size>1", ["a"]),
        ("size<3", ["a", "b"]),
    ],
)
async def test_label_selectors(api: Api, selector: str, expected: list[str]) -> None:
    await api.post(CONFIG_MAPS, labelled("a", color="red", size="2"))
    await api.post(CONFIG_MAPS, labelled("b", color="blue", size="1"))
    await api.post(CONFIG_MAPS, labelled("c"))
    assert await api.names(CONFIG_MAPS, labelSelector=selector) == expected


async def test_field_selectors_know_their_fields(things: Api) -> None:
    await things.post(PODS, pod("a", nodeName="n1"))
    await things.post(PODS, pod("b"))
    assert await things.names(PODS, fieldSelector="spec.nodeName=n1,status.phase=Pending") == ["a"]
    assert await things.names(PODS, fieldSelector="spec.nodeName=") == ["b"]
    assert await things.names(PODS, fieldSelector="metadata.name!=a") == ["b"]
    reply = await things.get(PODS, fieldSelector="spec.nonsense=1")
    assert (reply.code, reply.message) == (400, "field label not supported: spec.nonsense")
    await things.post(THINGS, thing("x", replicas=1, mode="slow"))
    await things.post(THINGS, thing("y", replicas=1))
    assert await things.names(THINGS, fieldSelector="spec.mode=slow") == ["x"]


@pytest.mark.parametrize("selector", ["a in (", "=", "a b", "a=b=c,,("])
async def test_nonsense_selectors_are_bad_requests(api: Api, selector: str) -> None:
    assert (await api.get(CONFIG_MAPS, labelSelector=selector)).code == 400


async def test_metadata_only_and_all_namespaces(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a", x="1"))
    await api.post("/api/v1/namespaces/kube-system/configmaps", config_map("b"))
    assert await api.names("/api/v1/configmaps") == ["a", "b"]
    api.session.headers["Accept"] = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    body = (await api.get(CONFIG_MAPS)).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert "data" not in body["items"][0]
