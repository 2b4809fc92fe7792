"""Jobs in cluster mode, with real processes: Brain sizes the second by what it learnt from the first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.cli.laptop.ports import free_port
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.brain.process import BrainProcess, brain_of
from tests.kit.brain.story import TRAINS
from tests.kit.browser import dom
from tests.kit.clusters.whole import WholeClusters
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, Stage, looking_on, over, role
from tests.kit.traps.switch import Switch
from tests.kit.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brain() -> AsyncIterator[list[BrainProcess]]:
    """The Brain of the stage, once that stands."""
    yield []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    whole_cluster: WholeClusters, tmp_path_factory: pytest.TempPathFactory, brain: list[BrainProcess]
) -> AsyncIterator[Stage]:
    """A cluster whose operator knows a Brain."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    key, port = folder / "key", free_port()
    key.write_text("a key of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN", f"127.0.0.1:{port}")
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN_KEY_FILE", str(key))
        async with (
            whole_cluster(folder, supervisor=preloaded.COMMAND) as cluster,
            Client(cluster.config()) as client,
            Switch(urlsplit(cluster.url).port or 0) as line,
            operator_of(over(line, cluster, folder), folder) as operator,
            brain_of(cluster.kubeconfig, folder, key, port) as process,
            looking_on(client) as onlooker,
        ):
            brain.append(process)
            yield Stage(client, operator, line, onlooker)


def spec(folder: Path) -> Manifest:
    """Return a job that says nothing about its sizes, but that there are at most two workers."""
    script = folder / "train.py"
    script.write_text(TRAINS)
    worker = role(["elasticjob", "run", str(script)], minReplicas=1, maxReplicas=2)
    del worker["replicas"]
    limits = {"cpu": "2", "memory": "8Gi"}
    return {"optimizeMode": "cluster", "resourceLimits": limits, "replicaSpecs": {"worker": worker}}


async def decisions(brain: BrainProcess, site: Site, name: str) -> list[Manifest]:
    """Return what Brain has decided for a job."""
    found = await brain.get(f"/v1/jobs/{site.namespace}/{name}")
    return list(found.get("decisions", []))


async def test_a_job_is_sized_by_the_history_of_an_earlier_one(
    site: Site, brain: list[BrainProcess], tmp_path: Path
) -> None:
    (process,) = brain
    first = Job(site, "first")
    await site.apply(spec(tmp_path), "first")

    async def grown() -> bool:
        made = [each["algorithm"] for each in await decisions(process, site, "first") if each["outcome"]]
        return made[:1] == ["worker-all-reduce"]

    await until(grown, "Brain grows the job", 120)
    await process.end("kill")
    await site.until(lambda: first.running() == {"master-0", "worker-0", "worker-1"}, 60)
    await process.start()
    await site.until(first.has_ended("Complete"), 150)
    plans = {name: plan.spec.reason for name, plan in site.plans().items()}
    assert any("worker-all-reduce: " in reason and "brain" in name for name, reason in plans.items()), plans

    async def learnt() -> bool:
        job = await process.get(f"/v1/jobs/{site.namespace}/first")
        return bool(job["completed"] and job["samples"][-1]["nodes"])

    await until(learnt, "Brain has seen the end", 60)
    second = Job(site, "second")
    await site.apply(spec(tmp_path), "second")
    await site.until(lambda: second.running() >= {"master-0", "worker-0", "worker-1"}, 120)
    made = (await decisions(process, site, "second"))[0]
    assert (made["event"], made["algorithm"]) == ("Start", "worker-from-history")
    told = [plan.spec.reason for plan in await site.client.list(SCALEPLAN, site.namespace)]
    assert any("1 completed jobs like it" in reason for reason in told), told
    picture = process.log.with_name("brain.png")
    page = await dom(f"{process.url}/#{site.namespace}/first", process.log.parent, picture)
    assert "worker-all-reduce" in page
    assert page.count("<polyline") == 4  # speed, workers, goodput, cost
    assert "core-hours used" in page
    assert picture.stat().st_size > 10_000
    everything = await dom(process.url, process.log.parent)
    assert all(f"{site.namespace}/{name}" in everything for name in ("first", "second"))
