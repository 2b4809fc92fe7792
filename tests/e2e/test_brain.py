"""Jobs in cluster mode, with real processes: Brain sizes them by history, and shares a full cluster."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.laptop.ports import free_port
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.kube.objects.kinds import Manifest
from lab import programs
from lab.clusters.installed.kubectl import Kubectl
from lab.jobs.history import PACED, History, tell
from lab.jobs.job import STEPS, TRAINS, Job, Stage, staged, trainer
from lab.jobs.site import Site
from tests.kit.browser import browsing

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

KUBECTL: Final = shutil.which("kubectl")
CAPACITY: Final = {"cpu": "2", "memory": "32Gi", "pods": "110"}
"""Room for five workers of 300m beside three or four masters of 100m."""
SHARES: Final = {
    "ELASTICJOB_BRAIN_SHARE": "fulfilment",
    "ELASTICJOB_BRAIN_SETTLE": "1",
    "ELASTICJOB_BRAIN_EVERY": "1",
}
MANY: Final = 500
RESOURCES: Final = {"requests": {"cpu": "300m", "memory": "1Gi"}}
JOBS: Final = ("first", "second", "third", "fourth")


@pytest.fixture(scope="module")
def port() -> int:
    """The Brain's, which the operator of the stage knows."""
    return free_port()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory, port: int) -> AsyncIterator[Stage]:
    """A small cluster whose operator knows a Brain; each test starts one that suits it."""
    folder = tmp_path_factory.mktemp("cluster")
    key = key_beside(folder / "kubeconfig")
    key.write_text("a key of this test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN", f"127.0.0.1:{port}")
        patch.setenv("ELASTICJOB_OPERATOR_BRAIN_KEY_FILE", str(key))
        async with (
            DevCluster(folder, nodes=[VirtualNode("shared", CAPACITY)], supervisor=TRAINS) as cluster,
            staged(cluster, folder) as found,
        ):
            yield found


def key_beside(kubeconfig: Path) -> Path:
    """Return the file of the key that Brain and its clients share."""
    return kubeconfig.with_name("key")


# history


async def test_a_job_is_sized_by_the_history_of_an_earlier_one(
    site: Site, stage: Stage, port: int, tmp_path: Path
) -> None:
    gate, (first, second) = tmp_path / "gate", (Job(site, name) for name in JOBS[:2])

    async def lose_brain() -> None:
        brain.kill()
        await site.until(lambda: first.running() == {"master-0", "worker-0", "worker-1"})
        await brain.up()

    async with programs.brain(stage.kubeconfig, tmp_path, key_beside(stage.kubeconfig), port=port) as brain:
        worker = sizeless(trainer(*PACED, gate))
        await tell(History(site, brain.url, worker, gate, lose_brain))
        picture = tmp_path / "brain.png"
        await site.until(lambda: second.running() >= {"master-0", "worker-0", "worker-1"})
        async with browsing(tmp_path) as tab:
            await tab.open(f"{brain.url}/#{site.namespace}/first")
            await tab.shows("worker-growth", "core-hours used", of="innerHTML")
            assert await tab.run("document.querySelectorAll('canvas').length") == 2  # speed, world
            await tab.picture(picture, whole=True)
            await tab.open(brain.url)
            await tab.shows(*(f"{site.namespace}/{name}" for name in ("first", "second")), of="innerHTML")
    assert picture.stat().st_size > 10_000


def sizeless(worker: Manifest) -> Manifest:
    """Return a role without its number of nodes."""
    return {name: value for name, value in worker.items() if name != "replicas"}


# sharing


def held(folder: Path, name: str) -> tuple[object, ...]:
    """Return the flags of a training that notes its steps, until its gate opens, at two a second."""
    return ("--steps", MANY, "--seconds", 0.5, "--gate", folder / f"{name}.go", "--note", folder / name)


def spec(folder: Path, name: str) -> Manifest:
    """Return a job of one to four workers."""
    worker = trainer(*held(folder, name), minReplicas=1, maxReplicas=4, resources=RESOURCES)
    return {"optimizeMode": "cluster", "replicaSpecs": {"worker": sizeless(worker)}}


def training(folder: Path, name: str) -> Manifest:
    """Return the same as a TrainingJob."""
    line = " ".join(map(str, ("elasticjob run", STEPS, *held(folder, name))))
    trainer = {"entrypoint": line, "min-instance": 1, "max-instance": 4, "resources": RESOURCES}
    return {"image": "elasticjob/trainer:0.1.0", "fault_tolerant": True, "trainer": trainer}


def at_work(jobs: Iterable[Job]) -> bool:
    """Whether five workers run, and those of each job train together: so each holds what was trained."""
    found = {job: len(job.running("worker")) for job in jobs}
    worlds = {job: job.status.training.world_size for job in found if job.status.training}
    return found == worlds and min(found.values()) >= 1 and sum(found.values()) == 5


async def test_a_full_cluster_is_shared_and_no_step_is_lost(
    site: Site, stage: Stage, port: int, tmp_path: Path
) -> None:
    async with programs.brain(stage.kubeconfig, tmp_path, key_beside(stage.kubeconfig), port=port, **SHARES):
        reasons = await shared(site, stage, tmp_path)
    assert any("gives up 1 instance for " in reason and "/fourth" in reason for reason in reasons), reasons
    assert any("least fulfilled first" in reason for reason in reasons), reasons


async def shared(site: Site, stage: Stage, folder: Path) -> list[str]:
    """Have three jobs fill the cluster, a fourth one come, and all end; return the reasons of all plans."""
    jobs: Mapping[str, Job] = {name: Job(site, name) for name in JOBS}
    three = [jobs[name] for name in ("first", "second", "third")]
    for job in three[:2]:
        await site.apply(spec(folder, job.name), job.name)
    manifest: Manifest = {"metadata": {"name": "third"}, "spec": training(folder, "third")}
    await site.client.create(TRAININGJOB.untyped(), manifest, site.namespace)
    await site.until(lambda: at_work(three))
    await site.apply(spec(folder, "fourth"), "fourth")
    await site.until(lambda: len(jobs["fourth"].running("worker")) == 1)
    await site.until(lambda: at_work(jobs.values()))
    (folder / "first.go").touch()
    await site.until(jobs["first"].has_ended("Complete"))
    await site.until(lambda: sum(len(jobs[name].running("worker")) for name in JOBS[1:]) == 5)
    for job in jobs.values():
        (folder / f"{job.name}.go").touch()
    for job in jobs.values():
        await site.until(job.has_ended("Complete"))
    reasons = [plan.spec.reason for plan in site.plans().values()]
    restarts = {name: job.status.restarts for name, job in jobs.items()}
    await site.until(lambda: site.job("third").status.phase == "Succeeded")
    if KUBECTL:
        kubectl = Kubectl(Path(KUBECTL), stage.kubeconfig)
        table = await kubectl("get", "trainingjobs", "-n", site.namespace)
        assert table.split()[6:12] == ["AGE", "third", "succeeded", table.split()[9], "1", "4"], table
    await site.client.delete(TRAININGJOB, "third", site.namespace)
    await site.has_only(ELASTICJOB, "first", "second", "fourth")
    for name in JOBS:
        made = [int(line) for line in (folder / name).read_text().splitlines()]
        gaps = [(one, other) for one, other in pairwise(made) if other != one + 1]
        assert (made[0], made[-1], gaps) == (1, MANY, []), name
        assert restarts[name] == 0
    return reasons
