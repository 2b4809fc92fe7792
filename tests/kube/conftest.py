"""A server that misbehaves on demand, and who calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from elasticjob.kube.client.client import Client
from tests.kit.kube.stub import Stub


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """It answers by what a test says with `then`, and hangs when that is over."""
    async with Stub() as found:
        yield found


@pytest.fixture
async def caller(stub: Stub) -> AsyncIterator[Client]:
    """A client of the stub, whose time stands still."""
    async with stub.client() as found:
        yield found
