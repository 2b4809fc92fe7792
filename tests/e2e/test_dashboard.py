"""`elasticjob dashboard` in a browser, beside a job that trains, grows, loses a worker and goes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.laptop.laptop import environment
from elasticjob.cli.story.processes import workers_of
from elasticjob.kube.objects.views import EVENT
from lab.jobs.job import TRAINS, Stage, submitted, trainer
from lab.jobs.site import Site
from lab.processes import Process
from tests.kit.browser import Tab, browsing

SUPERVISOR = TRAINS
pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]
HOSTILE = "<img src=x onerror=document.title=1>"


@asynccontextmanager
async def dashboard(kubeconfig: Path, namespace: str, folder: Path) -> AsyncIterator[str]:
    """Run the command until exit; yields the URL that it prints."""
    command = [sys.executable, "-m", "elasticjob.cli", "dashboard", "--kubeconfig", str(kubeconfig)]
    environ = {**environment(os.environ), "PYTHONUNBUFFERED": "1"}
    program = Process("dashboard", [*command, "--namespace", namespace], folder, environ, ready="http://")
    async with program:
        yield next(line.strip() for line in program.output.splitlines() if "http://" in line)
        program.send(signal.SIGINT)
        assert await program.wait() == 130


async def is_quiet(tab: Tab) -> None:
    """No script of the page has failed, and none was made of what the cluster says."""
    # A pod may be deleted while its log is asked for: then the page says so.
    assert [each for each in tab.complaints if "/page/logs/" not in each] == []
    assert await tab.run("document.images.length") == 1  # the mark
    assert await tab.run("document.querySelectorAll('script').length") == 3


async def test_a_job_is_seen_through_its_whole_life(site: Site, stage: Stage, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    worker = trainer("--steps", 5000, "--seconds", 0.1, "--gate", gate, minReplicas=1, maxReplicas=2)
    async with dashboard(stage.kubeconfig, site.namespace, tmp_path) as url, browsing(tmp_path) as tab:
        await tab.open(url)
        await tab.shows(f"No jobs in namespace {site.namespace} yet", "kubectl apply")
        job = await submitted(site, {"replicaSpecs": {"worker": worker}})
        await tab.shows("digits", "Running", "1/1")
        await tab.run("document.querySelector('.job a').click()")
        await tab.shows("samples/s", "digits-worker-0", "round 1 trains", "1 worker on 1 node")
        await site.scale(2)
        await tab.shows("2 workers", "digits-worker-1", "the user asks for worker 2", "by a user")
        os.kill(workers_of(job.processes("worker-1"))[0].pid, signal.SIGKILL)
        await tab.shows("round 3", "standstill")
        assert await tab.run("document.querySelectorAll('canvas').length") == 2
        await told(stage, site.namespace)
        await tab.shows(HOSTILE)
        await is_quiet(tab)
        await tab.open(url.partition("?")[0] + f"#/{site.namespace}/digits", wide=390, high=844)
        await tab.shows("samples/s")
        assert await tab.run("document.documentElement.scrollWidth <= 390")
        gate.touch()
        await tab.shows("Succeeded", "the job is over")
        await stage.client.delete(ELASTICJOB, "digits", site.namespace)
        await tab.shows("This job was deleted", "Succeeded")
        await is_quiet(tab)


async def told(stage: Stage, namespace: str) -> None:
    """Have an Event of the job say what would be a script."""
    about = {"kind": "ElasticJob", "name": "digits", "namespace": namespace}
    words = {"involvedObject": about, "reason": HOSTILE, "message": HOSTILE}
    await stage.client.create(EVENT.untyped(), {"metadata": {"generateName": "e"}, **words}, namespace)
