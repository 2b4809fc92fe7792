"""Clients that go away are nothing to complain about."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from tests.kit.devcluster.api import CONFIG_MAPS, Api, config_map


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
