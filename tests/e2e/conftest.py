"""A cluster with its operator as a process, shared by the tests of a module; each has its own namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from elasticjob.devcluster.node.container.processes import SUPERVISOR
from lab.clusters.whole import WholeClusters
from lab.jobs.job import Stage, staged
from lab.jobs.site import Site, lent


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    whole_cluster: WholeClusters, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Stage]:
    """Containers are started by the SUPERVISOR of the module, if it has one."""
    folder, supervisor = tmp_path_factory.mktemp("cluster"), getattr(request.module, "SUPERVISOR", SUPERVISOR)
    async with whole_cluster(folder, supervisor=supervisor) as cluster, staged(cluster, folder) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def site(stage: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A namespace named after the test; its jobs are gone afterwards."""
    async with lent(stage.client, stage.onlooker, request.node.name) as found:
        yield found
