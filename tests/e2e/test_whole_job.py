"""The one story of `make test`: a job trains, loses a pod in mid-life, and succeeds."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from elasticjob.cli.story.processes import main_of
from elasticjob.devcluster import DevCluster
from tests.kit.controllers.site import Site
from tests.kit.e2e import TRAINS, Job, Stage, staged, trainer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("cluster")
    async with DevCluster(folder, supervisor=TRAINS) as cluster, staged(cluster, folder) as found:
        yield found


async def test_a_job_that_loses_a_pod_in_mid_life_succeeds(site: Site, tmp_path: Path) -> None:
    job, gate, note = Job(site), tmp_path / "gate", tmp_path / "steps"
    workers = trainer("--steps", 300, "--gate", gate, "--note", note, replicas=2, restartCount=1)
    await site.apply({"replicaSpecs": {"worker": workers}})

    def trains(*, beyond: int) -> bool:
        told = job.status.training
        return told is not None and told.world_size == 2 and (told.step or 0) > beyond

    await site.until(lambda: trains(beyond=0))
    main = main_of(job.processes("worker-1"))
    assert main is not None
    os.kill(main.pid, signal.SIGKILL)
    await site.until(lambda: job.running() == {"master-0", "worker-0", "worker-1-1"})
    done = len(note.read_text().splitlines())
    await site.until(lambda: trains(beyond=done))
    gate.touch()
    await site.until(job.has_ended("Complete"))
    assert [int(line) for line in note.read_text().splitlines()] == [*range(1, 301)]
    assert job.born.keys() == {"master-0", "worker-0", "worker-1", "worker-1-1"}
    assert job.status.restarts == 1
