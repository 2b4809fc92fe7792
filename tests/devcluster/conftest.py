"""Fixtures of whole clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from elasticjob.devcluster import DevCluster, VirtualNode
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.installing import install
from tests.kit.devcluster.documented import CRONTABS
from tests.kit.devcluster.live import QUICK, Live, live

NODE = VirtualNode("node", {"cpu": "8", "memory": "16Gi", "pods": "50", "nvidia.com/gpu": "2"})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Live]:
    """A cluster of one node with two pretended devices."""
    async with live(tmp_path / "state", nodes=(NODE,)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevCluster]:
    """A cluster for all tests of a module, with CronTabs; each test names its own objects."""
    async with (
        DevCluster(tmp_path_factory.mktemp("state"), nodes=(NODE,), restart=QUICK, pull=QUICK) as cluster,
        Client(cluster.config()) as client,
    ):
        await install(client, [CRONTABS], "tests")
        yield cluster
