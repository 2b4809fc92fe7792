"""A cluster with its operator as a process, shared by the tests of a module; each has its own namespace."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.devcluster.node.container.processes import SUPERVISOR
from lab.clusters.namespaces import new_namespace
from lab.clusters.whole import WholeClusters
from lab.jobs.job import Stage, staged
from lab.jobs.site import Site


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
    words = request.node.name.removeprefix("test_").partition("[")[0].replace("_", "-")
    namespace = f"{words[:40].strip('-')}-{secrets.token_hex(4)}"
    await new_namespace(stage.client, namespace)
    found = Site(stage.client, stage.onlooker, namespace)
    yield found
    for job in await stage.client.list(ELASTICJOB, namespace):
        await stage.client.delete(ELASTICJOB, job.metadata.name, namespace)
    await found.until(lambda: not found.pods())
