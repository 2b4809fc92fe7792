"""Jobs in cluster mode, with real processes: Brain sizes them by history, and shares a full cluster."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.laptop.ports import free_port
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.brain.process import BrainProcess, brain_of
from tests.kit.brain.story import LIMITS, PACED, tell
from tests.kit.browser import dom
from tests.kit.controllers.site import Site
from tests.kit.e2e import STEPS, TRAINS, Job, Stage, staged, trainer
from tests.kit.node.kubectl import Kubectl

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

KUBECTL: Final = shutil.which("kubectl")
CAPACITY: Final = {"cpu": "2", "memory": "32Gi", "pods": "110"}
"""Room for five workers of 300m beside three or four masters of 100m."""
SHARES: Final = {"ELASTICJOB_BRAIN_SHARE": "fulfilment", "ELASTICJOB_BRAIN_SETTLE": "1"}
MANY: Final = 500
JOBS: Final = ("first", "second", "third", "fourth")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def brain() -> AsyncIterator[list[BrainProcess]]:
    """The Brain of the stage, once that stands."""
    yield []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, brain: list[BrainProcess]) -> AsyncIterator[Stage]:
    """A small cluster whose operator knows a Brain."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    key, port = folder / "key", free_port()
    key.write_text("a key of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN", f"127.0.0.1:{port}")
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN_KEY_FILE", str(key))
        async with (
            DevCluster(folder, nodes=[VirtualNode("shared", CAPACITY)], supervisor=TRAINS) as cluster,
            staged(cluster, folder) as found,
            brain_of(cluster.kubeconfig, folder, key, port) as process,
        ):
            brain.append(process)
            yield found


# history


@dataclass(frozen=True)
class OnDevcluster:
    """Where Brain's story is told."""

    site: Site
    brain: BrainProcess
    folder: Path

    async def apply(self, name: str) -> None:
        worker = trainer(*PACED, self.folder / name, minReplicas=1, maxReplicas=2)
        del worker["replicas"]
        spec = {"optimizeMode": "cluster", "resourceLimits": LIMITS, "replicaSpecs": {"worker": worker}}
        await self.site.apply(spec, name)

    async def let_go(self, name: str) -> None:
        (self.folder / name).touch()
        await self.site.until(Job(self.site, name).has_ended("Complete"))

    async def known(self, name: str) -> dict[str, Any]:
        try:
            return dict(await self.brain.get(f"/v1/jobs/{self.site.namespace}/{name}"))
        except aiohttp.ClientError:
            return {}

    async def lose_brain(self) -> None:
        await self.brain.end("kill")
        job = Job(self.site, "first")
        await self.site.until(lambda: job.running() == {"master-0", "worker-0", "worker-1"})
        await self.brain.start()

    async def reasons(self) -> list[str]:
        return [plan.spec.reason for plan in self.site.plans().values()]


async def test_a_job_is_sized_by_the_history_of_an_earlier_one(
    site: Site, brain: list[BrainProcess], tmp_path: Path
) -> None:
    (process,) = brain
    await tell(OnDevcluster(site, process, tmp_path))
    second = Job(site, "second")
    await site.until(lambda: second.running() >= {"master-0", "worker-0", "worker-1"})
    picture = process.log.with_name("brain.png")
    page = await dom(f"{process.url}/#{site.namespace}/first", process.log.parent, picture)
    assert "worker-all-reduce" in page
    assert page.count("<polyline") == 4  # speed, workers, goodput, cost
    assert "core-hours used" in page
    assert picture.stat().st_size > 10_000
    everything = await dom(process.url, process.log.parent)
    assert all(f"{site.namespace}/{name}" in everything for name in ("first", "second"))


# sharing


def held(gate: Path, note: Path) -> tuple[object, ...]:
    """Return the flags of a training that notes its steps, until its gate opens, at two a second."""
    return ("--steps", MANY, "--seconds", 0.5, "--gate", gate, "--note", note)


def spec(folder: Path, name: str) -> Manifest:
    """Return a job of one to four workers."""
    worker = trainer(
        *held(folder / f"{name}.go", folder / name),
        minReplicas=1,
        maxReplicas=4,
        resources={"requests": {"cpu": "300m", "memory": "1Gi"}},
    )
    del worker["replicas"]
    return {"optimizeMode": "cluster", "replicaSpecs": {"worker": worker}}


def training(folder: Path, name: str) -> Manifest:
    """Return the same as a TrainingJob."""
    flags = " ".join(map(str, held(folder / f"{name}.go", folder / name)))
    trainer = {
        "entrypoint": f"elasticjob run {STEPS} {flags}",
        "min-instance": 1,
        "max-instance": 4,
        "resources": {"requests": {"cpu": "300m", "memory": "1Gi"}},
    }
    return {"image": "elasticjob/trainer:0.1.0", "fault_tolerant": True, "trainer": trainer}


def workers(job: Job) -> int:
    """Return how many of its workers run and are not on their way out."""
    return sum(name.startswith("worker") for name in job.running())


@pytest_asyncio.fixture(loop_scope="module")
async def sharing(site: Site, brain: list[BrainProcess]) -> AsyncIterator[None]:
    """Brain shares the cluster among its jobs."""
    (process,) = brain
    await process.end()
    process.environ |= SHARES
    await process.start()
    yield
    await process.end()
    process.environ.clear()
    await process.start()


async def test_a_full_cluster_is_shared_and_no_step_is_lost(
    site: Site, stage: Stage, sharing: None, tmp_path: Path
) -> None:
    jobs: Mapping[str, Job] = {name: Job(site, name) for name in JOBS}
    three = [jobs[name] for name in ("first", "second", "third")]
    for job in three[:2]:
        await site.apply(spec(tmp_path, job.name), job.name)
    manifest: Manifest = {"metadata": {"name": "third"}, "spec": training(tmp_path, "third")}
    await site.client.create(TRAININGJOB.untyped(), manifest, site.namespace)
    await site.until(lambda: min(map(workers, three)) >= 1 and sum(map(workers, three)) == 5)
    await site.apply(spec(tmp_path, "fourth"), "fourth")
    await site.until(lambda: workers(jobs["fourth"]) == 1)
    await site.until(lambda: min(map(workers, jobs.values())) >= 1 and sum(map(workers, jobs.values())) == 5)
    (tmp_path / "first.go").touch()
    await site.until(jobs["first"].has_ended("Complete"))
    await site.until(lambda: sum(map(workers, list(jobs.values())[1:])) == 5)
    for job in jobs.values():
        (tmp_path / f"{job.name}.go").touch()
    for job in jobs.values():
        await site.until(job.has_ended("Complete"))
    reasons = [plan.spec.reason for plan in site.plans().values()]
    restarts = {name: job.status.restarts for name, job in jobs.items()}
    await site.until(lambda: site.job("third").status.phase == "Succeeded")
    if KUBECTL and stage.kubeconfig:
        kubectl = Kubectl(Path(KUBECTL), stage.kubeconfig)
        table = await kubectl("get", "trainingjobs", "-n", site.namespace)
        assert table.split()[6:12] == ["AGE", "third", "succeeded", table.split()[9], "1", "4"], table
    await site.client.delete(TRAININGJOB, "third", site.namespace)
    await site.has_only(ELASTICJOB, "first", "second", "fourth")
    for name in JOBS:
        made = [int(line) for line in (tmp_path / name).read_text().splitlines()]
        assert made == list(range(1, MANY + 1)), name
        assert restarts[name] == 0
    assert any("gives up 1 instance for " in reason and "/fourth" in reason for reason in reasons), reasons
    assert any("least fulfilled first" in reason for reason in reasons), reasons
