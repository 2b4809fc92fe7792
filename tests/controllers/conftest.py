"""A cluster with the operator in it, shared by the tests of a module; each has its own namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.client import Client
from lab.clusters.accounts import RULES, shipped_account
from lab.clusters.definitions import define
from lab.clusters.namespaces import new_namespace
from lab.clusters.rights import Noting, allows
from lab.clusters.whole import WholeClusters
from lab.jobs.site import Site, Stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    whole_cluster: WholeClusters, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    async with whole_cluster(folder, rbac=True) as cluster, Client(cluster.config()) as client:
        await define(client)
        async with Noting(await shipped_account(cluster, client)) as noting:
            found = Stage(client, noting, cluster)
            await found.start()
            try:
                yield found
            finally:
                await found.stop()
            assert {right for right in noting.used if not allows(RULES, right)} == set()  # of all tests here


@pytest_asyncio.fixture(loop_scope="module")
async def site(stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A namespace named after the test; its jobs are gone afterwards."""
    words = request.node.name.removeprefix("test_").replace("_", "-").split("[")[0]
    namespace = await new_namespace(stage.client, words[:40].strip("-"))
    found = Site(stage.client, stage.operator, namespace)
    yield found
    found.operator = stage.operator
    for job in await stage.client.list(ELASTICJOB, namespace):
        await stage.client.delete(ELASTICJOB, job.metadata.name, namespace)
    await found.until(lambda: not found.pods())
