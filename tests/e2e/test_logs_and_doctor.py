"""`elasticjob logs -f` through a relaunch, and `elasticjob doctor` on a job that fails."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from lab.jobs.job import Stage, submitted
from lab.jobs.site import Site
from lab.jobs.whole import local
from lab.waiting import PATIENCE

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
    following = await elasticjob(stage, site, "logs", "digits", "-f")
    assert following.stdout
    lines: list[str] = []

    async def until(*expected: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not {*expected} <= {*lines}:
                lines.append(" ".join((await following.stdout.readline()).decode().split()))  # type: ignore[union-attr]
                assert lines[-1], f"the log ended: {lines}"

    await site.until(lambda: job.running() == {"worker-0", "worker-1"})
    await until("worker-0 | begins", "worker-1 | begins")
    job.kill("worker-1")
    await until("worker-1.1 | begins")
    gate.touch()
    await until("worker-0 | ends", "worker-1.1 | ends")
    said = (await following.communicate())[1].decode()
    assert sorted(lines) == sorted({*lines}), "a line was told twice"
    assert following.returncode == 0
    assert {"worker-0: ended", "worker-1.1: ended"} <= {*said.splitlines()}, said
    assert "worker-1: ended with exit code 137" in said


async def test_the_doctor_says_why_a_job_failed_and_what_comes_next(stage: Stage, site: Site) -> None:
    job = await submitted(site, local(replicas=1, program="import nothing_here", restartPolicy="Never"))
    await site.until(job.has_ended("Failed"))
    examining = await elasticjob(stage, site, "doctor", "digits")
    told, said = (each.decode() for each in await examining.communicate())
    assert examining.returncode == 1, said
    assert "✗ the job has failed: PodFailed: " in told
    assert "No module named 'nothing_here'" in told
    assert f"→ elasticjob logs digits -n {site.namespace}" in told

    examining = await elasticjob(stage, site, "doctor")
    told = (await examining.communicate())[0].decode()
    assert examining.returncode == 0, told
    for line in (
        "✓ webhooks check jobs",
        "✓ the API server answers: v",
        f"! {site.namespace}/digits is Failed",
    ):
        assert line in told


async def elasticjob(stage: Stage, site: Site, *words: str) -> asyncio.subprocess.Process:
    """Start a command as a user of the test's namespace."""
    place = ("--kubeconfig", str(stage.kubeconfig), "-n", site.namespace)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "elasticjob.cli", *words, *place, stdout=PIPE, stderr=PIPE
    )
