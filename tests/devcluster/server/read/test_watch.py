"""Bookmarks, and a history that ends; more of watches and lists is in tests/conformance."""

from __future__ import annotations

from elasticjob.devcluster.server import ApiServer
from tests.kit.devcluster.api import CONFIG_MAPS, PODS, Api, client, config_map, pod


async def version(api: Api) -> str:
    return str((await api.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"])


async def test_bookmarks_carry_the_version_of_the_whole_server(api: Api) -> None:
    since = await version(api)
    other = (await api.post(PODS, pod("p"))).body["metadata"]["resourceVersion"]
    mark = await api.until(CONFIG_MAPS, "BOOKMARK", resourceVersion=since, allowWatchBookmarks="true")
    assert int(mark["metadata"]["resourceVersion"]) >= int(other)


async def test_no_bookmarks_unless_asked_for(api: Api) -> None:
    async with api.watch(CONFIG_MAPS, resourceVersion=await version(api), timeoutSeconds="0.2") as events:
        assert [each async for each in events] == []


async def test_short_history_expires_by_itself() -> None:
    async with ApiServer(history=2) as server:
        server.add_token("secret", "admin", ["system:masters"])
        async with client(server) as api:
            since = await version(api)
            for name in "abc":
                await api.post(CONFIG_MAPS, config_map(name))
            reply = await api.get(CONFIG_MAPS, watch="1", resourceVersion=since)
            assert (reply.body["type"], reply.body["object"]["code"]) == ("ERROR", 410)


async def test_a_continue_token_dies_with_the_history(api: Api) -> None:
    for name in "ab":
        await api.post(CONFIG_MAPS, config_map(name))
    token = (await api.get(CONFIG_MAPS, limit="1")).body["metadata"]["continue"]
    await api.post(CONFIG_MAPS, config_map("c"))
    api.server.compact()
    reply = await api.get(CONFIG_MAPS, limit="1", **{"continue": token})
    assert (reply.code, reply.reason) == (410, "Expired")
    assert (await api.get(CONFIG_MAPS, **{"continue": "abc"})).code == 400
