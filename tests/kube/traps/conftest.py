"""The fault proxy before the server of the suite, and a client that speaks through it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.testing import FaultProxy
from lab.clusters.served import Served


@pytest.fixture
async def proxy(served: Served) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(served.config()) as found:
        yield found


@pytest.fixture
async def through(proxy: FaultProxy) -> AsyncIterator[Client]:
    """An administrator's client, through the proxy; `client` goes straight to the server."""
    async with Client(proxy.config, user_agent="through") as found:
        yield found
