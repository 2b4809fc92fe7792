"""The one story of `make test`: a job trains, loses a pod in mid-life, and succeeds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from elasticjob.cli.story.example import STEPS as RECORD
from elasticjob.cli.story.steps import Step, gaps
from lab.jobs.job import TRAINS, submitted, trainer
from lab.jobs.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")
SUPERVISOR = TRAINS


async def test_a_job_that_loses_a_pod_in_mid_life_succeeds(site: Site, tmp_path: Path) -> None:
    gate, record = tmp_path / "gate", tmp_path / "steps.jsonl"
    workers = trainer("--steps", 300, "--gate", gate, replicas=2, restartCount=1)
    envs = {RECORD: {"value": str(record)}}
    job = await submitted(site, {"replicaSpecs": {"worker": workers}, "envs": envs})

    def trains(*, beyond: int) -> bool:
        told = job.status.training
        return told is not None and told.world_size == 2 and (told.step or 0) > beyond

    await site.until(lambda: trains(beyond=0))
    job.kill("worker-1")
    await site.until(lambda: job.running() == {"master-0", "worker-0", "worker-1-1"})
    done = recorded(record)[-1].step
    await site.until(lambda: trains(beyond=done))
    gate.touch()
    await site.until(job.has_ended("Complete"))
    assert gaps(recorded(record)) == ()
    assert recorded(record)[-1].step == 300
    assert job.born.keys() == {"master-0", "worker-0", "worker-1", "worker-1-1"}
    assert job.status.restarts == 1


def recorded(record: Path) -> list[Step]:
    """Return the steps that main workers have written."""
    return [msgspec.json.decode(line, type=Step) for line in record.read_text().splitlines()]
