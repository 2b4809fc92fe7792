"""Fixtures of whole clusters."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from elasticjob.devcluster import DevCluster, VirtualNode
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.installing import install
from elasticjob.kube.objects.views import NAMESPACE
from tests.kit.devcluster.documented import CRONTABS
from tests.kit.devcluster.live import QUICK, Live, live

NODE = VirtualNode("node", {"cpu": "8", "memory": "16Gi", "pods": "50", "nvidia.com/gpu": "2"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    async with live(tmp_path_factory.mktemp("state"), nodes=(NODE,)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(running: Live) -> AsyncIterator[Live]:
    """A cluster of one node with two pretended devices, where the test has a namespace and all the room."""
    mine = replace(running, namespace=f"test-{secrets.token_hex(4)}")
    await running.client.create(NAMESPACE, {"metadata": {"name": mine.namespace}})
    yield mine
    await mine.cleared()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevCluster]:
    """A cluster for all tests of a module, with CronTabs; each test names its own objects."""
    async with (
        DevCluster(tmp_path_factory.mktemp("state"), nodes=(NODE,), restart=QUICK, pull=QUICK) as cluster,
        Client(cluster.config()) as client,
    ):
        await install(client, [CRONTABS], "tests")
        yield cluster
