"""A cluster with the operator in it, shared by the tests of a module; each has its own namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from elasticjob.kube.client.client import Client
from lab.clusters.accounts import RULES
from lab.clusters.definitions import define
from lab.clusters.rights import allows
from lab.clusters.whole import WholeClusters
from lab.jobs.site import Site, Stage, at_work, lent


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    whole_cluster: WholeClusters, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    async with whole_cluster(folder, rbac=True) as cluster, Client(cluster.config()) as client:
        await define(client)
        async with at_work(cluster, client) as found:
            yield found
        used = found.noting.used  # by all tests here
        assert {right for right in used if not allows(RULES, right)} == set()


@pytest_asyncio.fixture(loop_scope="module")
async def site(stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A namespace named after the test; its jobs are gone afterwards."""
    async with lent(stage.client, stage.operator, request.node.name) as found:
        yield found
        found.operator = stage.operator
