"""A running API server and a plain HTTP client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from elasticjob.devcluster.server import ApiServer
from tests.kit.devcluster.api import Api, client, definition


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(bookmark_interval=0.05) as running:
        running.add_token("secret", "admin", ["system:masters"])
        yield running


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    async with client(server) as ready:
        yield ready


@pytest.fixture
async def things(api: Api) -> Api:
    """The client, with the custom resource `things` in place."""
    await api.define(definition())
    return api
