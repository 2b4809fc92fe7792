"""Bookmarks, a history that ends, clients that go; more of watches and lists is in tests/conformance."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

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


async def gone(response: web.StreamResponse, lines: bytes) -> None:
    """What writing says between the end of a connection and the news of it."""
    raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")


async def test_a_watch_whose_client_is_gone_ends_without_a_word(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web.StreamResponse, "write", gone)
    async with api.watch(CONFIG_MAPS) as events:
        await api.post(CONFIG_MAPS, config_map("a"))
        assert [each async for each in events] == []
    assert [record.message for record in caplog.records] == []
