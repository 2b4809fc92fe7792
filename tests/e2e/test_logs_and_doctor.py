"""`elasticjob logs -f` through a relaunch, and `elasticjob doctor` on a job that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.jobs.job import Stage, submitted
from lab.jobs.site import Site
from lab.jobs.whole import local
from lab.processes import Process
from lab.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]
COUNTS = """
import os, pathlib, time
gate = pathlib.Path({gate!r})
print("begins", flush=True)
while not gate.exists():
    time.sleep(0.02)
print("ends", flush=True)
"""


async def test_logs_go_on_in_the_pod_that_replaces_a_killed_one(
    stage: Stage, site: Site, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = await submitted(site, local(program=COUNTS.format(gate=str(gate))))
    following = elasticjob(stage, site, tmp_path, "logs", "digits", "-f")
    following.spawn()

    def lines() -> list[str]:
        return [" ".join(line.split()) for line in following.output.splitlines()]

    async def says(*expected: str) -> None:
        await until(lambda: {*expected} <= {*lines()}, f"the logs have {expected}")

    await site.until(lambda: job.running() == {"worker-0", "worker-1"})
    await says("worker-0 | begins", "worker-1 | begins")
    job.kill("worker-1")
    await says("worker-1.1 | begins")
    gate.touch()
    await says("worker-0 | ends", "worker-1.1 | ends")
    assert await following.wait() == 0
    assert sorted(lines()) == sorted({*lines()}), "a line was told twice"
    assert {"worker-0: ended", "worker-1.1: ended"} <= {*lines()}
    assert "worker-1: ended with exit code 137" in following.output


async def test_the_doctor_says_why_a_job_failed_and_what_comes_next(
    stage: Stage, site: Site, tmp_path: Path
) -> None:
    job = await submitted(site, local(replicas=1, program="import nothing_here", restartPolicy="Never"))
    await site.until(job.has_ended("Failed"))
    doctor = elasticjob(stage, site, tmp_path, "doctor", "digits")
    doctor.spawn()
    assert await doctor.wait() == 1, doctor.output
    assert "✗ the job has failed: PodFailed: " in doctor.output
    assert "No module named 'nothing_here'" in doctor.output
    assert f"$ elasticjob logs digits -n {site.namespace}" in doctor.output

    doctor = elasticjob(stage, site, tmp_path, "doctor")
    doctor.spawn()
    assert await doctor.wait() == 0, doctor.output
    healthy = ("✓ webhooks check jobs", "✓ the API server answers: v")
    assert all(line in doctor.output for line in (*healthy, f"{site.namespace}/digits is Failed"))


def elasticjob(stage: Stage, site: Site, folder: Path, *words: str) -> Process:
    """A command as a user of the test's namespace types it."""
    place = ("--kubeconfig", str(stage.kubeconfig), "-n", site.namespace)
    return Process(words[0], [sys.executable, "-m", "elasticjob.cli", *words, *place], folder)
