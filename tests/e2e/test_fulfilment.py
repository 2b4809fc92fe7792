"""Jobs with real processes share a full cluster: a fourth gets its minimum, and room goes to the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.laptop import free_port, operator_of
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.brain.process import brain_of
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, Stage, looking_on, over, role
from tests.kit.traps.switch import Switch

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CAPACITY: Final = {"cpu": "2", "memory": "32Gi", "pods": "110"}
"""Room for five workers of 300m beside three masters of 100m, and for four beside four."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A small cluster that a Brain shares among its jobs."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    key, port = folder / "key", free_port()
    key.write_text("a key of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN", f"127.0.0.1:{port}")
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN_KEY_FILE", str(key))
        settings = {"ELASTICJOB_BRAIN_SHARE": "fulfilment", "ELASTICJOB_BRAIN_SETTLE": "1"}
        async with (
            DevCluster(folder, nodes=[VirtualNode("shared", CAPACITY)]) as cluster,
            Client(cluster.config()) as client,
            Switch(urlsplit(cluster.url).port or 0) as line,
            operator_of(over(line, cluster, folder), folder) as operator,
            brain_of(cluster.kubeconfig, folder, key, port, **settings),
            looking_on(client) as onlooker,
        ):
            yield Stage(client, operator, line, onlooker)


def spec() -> Manifest:
    """Return a job of one to four workers."""
    worker = role(
        ["elasticjob", "run", "--no-python", "sleep", "600"],
        minReplicas=1,
        maxReplicas=4,
        resources={"requests": {"cpu": "300m", "memory": "1Gi"}},
    )
    del worker["replicas"]
    return {"optimizeMode": "cluster", "replicaSpecs": {"worker": worker}}


def workers(job: Job) -> int:
    """Return how many of its workers run and are not on their way out."""
    return sum(name.startswith("worker") for name in job.running())


async def test_a_full_cluster_is_shared_fairly(site: Site) -> None:
    jobs = {name: Job(site, name) for name in ("first", "second", "third", "fourth")}
    three = [jobs[name] for name in ("first", "second", "third")]
    for job in three:
        await site.apply(spec(), job.name)
    await site.until(lambda: min(map(workers, three)) == 1 and sum(map(workers, three)) == 5, 60)
    await site.apply(spec(), "fourth")
    await site.until(lambda: sorted(map(workers, jobs.values())) == [1, 1, 1, 2], 60)
    reasons = [plan.spec.reason for plan in site.plans().values()]
    await site.client.delete(ELASTICJOB, "first", site.namespace)
    await site.until(lambda: sorted(map(workers, [*three[1:], jobs["fourth"]])) == [1, 2, 2], 60)
    assert any("gives up 1 instance for " in reason and "/fourth" in reason for reason in reasons), reasons
    assert any("least fulfilled first" in reason for reason in reasons), reasons
