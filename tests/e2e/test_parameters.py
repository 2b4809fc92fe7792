"""Parameter servers with real processes: more, fewer, moved, killed, workers too; each record counts once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from elasticjob.kube.objects.kinds import Manifest
from lab.jobs.job import Job, role
from lab.jobs.site import Site
from lab.jobs.training.servers import COUNTER, Training
from lab.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

SERVE = "elasticjob.trainer.store.serve"
RECORDS = 4000


def spec(folder: Path) -> Manifest:
    """Return a job of three servers and two workers that count records."""
    return {
        "distributionStrategy": "ParameterServerStrategy",
        "optimizeMode": "manual",
        "replicaSpecs": {
            "ps": role(["python", "-m", SERVE, str(folder / "kept")], 3, minReplicas=1, maxReplicas=6),
            "worker": role(["python", str(COUNTER), str(RECORDS), str(folder)], 2, restartCount=5),
        },
    }


def kill(job: Job, *pods: str) -> None:
    """End the processes of pods without a word."""
    for pod in pods:
        for process in job.processes(pod):
            os.kill(process.pid, signal.SIGKILL)


async def kept(folder: Path) -> None:
    """Wait for a checkpoint from now on."""
    before = set((folder / "kept").glob("*"))

    await until(
        lambda: not before.issuperset(each.parent for each in (folder / "kept").glob("*/manifest.json")),
        "a checkpoint",
    )


async def test_servers_and_workers_come_go_move_and_die_and_each_record_counts_once(
    site: Site, tmp_path: Path
) -> None:
    job, training = Job(site), Training(tmp_path)
    await site.apply(spec(tmp_path))
    await training.goes_on()
    await site.plan("four", replicaResourceSpecs={"ps": {"replicas": 4}})
    await training.goes_on()
    await site.plan("two", replicaResourceSpecs={"ps": {"replicas": 2}})
    await site.until(lambda: not job.running() & {"ps-2", "ps-3"})
    await training.goes_on()
    await site.plan("move", migratePods=[{"name": "digits-ps-0", "resource": {"cpu": "100m"}}])
    await site.until(lambda: job.running() & {"ps-0", "ps-0-1"} == {"ps-0-1"})
    await training.goes_on()
    kill(job, "worker-1")
    await training.goes_on()
    kill(job, "ps-1")
    await site.until(lambda: "ps-1-1" in job.running())
    await training.goes_on()
    await kept(tmp_path)
    await training.goes_on()
    kill(job, "ps-0-1", "ps-1-1")
    await training.goes_on()
    training.may_end()
    await site.until(job.has_ended("Complete"))
    assert await training.counts() == [1.0] * RECORDS
