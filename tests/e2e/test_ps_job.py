"""One job with parameter servers, changed in every way that a user, the operator and the kernel change it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from elasticjob.api.resources import Cores
from elasticjob.kube.objects.kinds import Manifest
from lab.jobs.job import Job, role, submitted, with_servers
from lab.jobs.site import Site
from lab.jobs.training.servers import COUNTER, Training, serving
from lab.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

RECORDS: Final = 20_000


def spec(folder: Path) -> Manifest:
    """Return a job of two servers and two workers."""
    worker = ["python3", str(COUNTER), str(RECORDS), str(folder)]
    limits = {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}}
    return with_servers(
        role(serving(folder), 2, minReplicas=1, maxReplicas=6, resources=limits),
        role(worker, 2, minReplicas=1, maxReplicas=4, autoScale=False),
    )


def memory(job: Job, pod: str) -> str:
    """Return the memory limit of a pod."""
    return str(job.pods()[pod].spec.containers[0].resources.limits.get("memory"))


def cores(job: Job, pod: str) -> float:
    """Return the cores that a pod requests."""
    return float(Cores.parse(job.pods()[pod].spec.containers[0].resources.requests["cpu"]).value)


def checkpoints(folder: Path) -> set[Path]:
    """Return those that are whole."""
    return {each.parent for each in folder.glob("*/manifest.json")}


async def test_a_job_with_servers_lives_through_every_change(site: Site, tmp_path: Path) -> None:
    training, kept = Training(tmp_path), tmp_path / "kept"

    async def has(servers: set[str], workers: int = 2) -> None:
        """Wait for exactly these servers, so many workers, and what they do then."""
        await site.until(lambda: job.running("ps") == servers and len(job.running("worker")) == workers)
        await training.goes_on()

    job = await submitted(site, spec(tmp_path))
    await has({"ps-0", "ps-1"})

    await site.patch({"replicaSpecs": {"ps": {"replicas": 3}}})  # kubectl edit
    await has({"ps-0", "ps-1", "ps-2"})
    await site.plan("fewer", replicaResourceSpecs={"ps": {"replicas": 2}})
    await has({"ps-0", "ps-1"})

    await site.plan("hot", migratePods=[{"name": "digits-ps-0", "resource": {"cpu": "60m"}}])
    await site.until(lambda: cores(job, "ps-0") == 0.06)
    await has({"ps-0", "ps-1"})  # in place
    await site.plan("move", migratePods=[{"name": "digits-ps-0", "resource": {"ephemeral-storage": "1Mi"}}])
    await has({"ps-0-1", "ps-1"})  # which cannot be changed in place

    training.tell("hungry", "digits-ps-1")
    await has({"ps-0-1", "ps-1-1"})
    sentence = "digits-ps-1 was OOMKilled at 256Mi: ps gets 512Mi"
    assert site.plans()["digits-ps-1-memory"].spec.reason == sentence
    assert memory(job, "ps-1-1") == "512Mi"
    await site.until(lambda: memory(job, "ps-0-1") == "512Mi")  # in place, without a move

    await site.scale(4)  # kubectl scale
    await has({"ps-0-1", "ps-1-1"}, workers=4)
    job.kill("ps-0-1", "worker-1")
    await has({"ps-0-2", "ps-1-1"}, workers=4)
    before = checkpoints(kept)
    await until(lambda: not before.issuperset(checkpoints(kept)), "a checkpoint from now on")
    await training.goes_on()
    job.kill("ps-0-2", "ps-1-1")
    await has({"ps-0-3", "ps-1-2"}, workers=4)  # from that checkpoint: no server has any record in memory
    await site.scale(1)
    await has({"ps-0-3", "ps-1-2"}, workers=1)

    training.may_end()
    await site.until(job.has_ended("Complete"))
    assert await training.counts() == [1.0] * RECORDS
    assert {name for name in job.born if name.startswith("ps-")} == {
        *("ps-0", "ps-0-1", "ps-0-2", "ps-0-3"),  # moved, killed alone, killed with its peer
        *("ps-1", "ps-1-1", "ps-1-2"),  # out of memory, killed
        "ps-2",
    }


async def test_a_server_that_works_at_its_limit_gets_cores(site: Site, tmp_path: Path) -> None:
    Training(tmp_path).tell("hot", "digits-ps-1")
    envs = {"ELASTICJOB_MASTER__PACE": {"value": "0.1"}}
    job = await submitted(site, {**spec(tmp_path), "envs": envs})
    await site.until(lambda: cores(job, "ps-1") > 0.3)
    assert cores(job, "ps-0") < 0.3
    made = [each for each in site.plans().values() if each.spec.migrate_pods]
    assert not any(each.manual for each in made)
    assert any("digits-ps-1 gets" in each.spec.reason for each in made)
    await site.until(lambda: job.running() >= {"ps-0", "ps-1"})  # in place
