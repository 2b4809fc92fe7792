"""One job with parameter servers on a real node, changed in every way; each of its records counts once."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.installed.installation import Installation
from lab.clusters.installed.stage import VOLUME, furniture, role
from lab.clusters.installed.timeline import Row
from lab.jobs.job import Job, submitted, with_servers
from lab.jobs.site import Site
from lab.jobs.training.servers import COUNTER, Training, serving
from lab.processes import run
from lab.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

RECORDS: Final = 8_000
PACE: Final = 0.05
"""Seconds of a batch of five records, of each worker."""


@dataclass
class Play:
    """The job, what its workers have done, and what it cost."""

    node: Installation
    site: Site
    job: Job
    training: Training

    @asynccontextmanager
    async def standstill(self, what: str, servers: set[str], workers: int = 2) -> AsyncIterator[None]:
        """Do it, and wait until exactly these pods train; note how long none of them did."""
        began, steps = time.time(), self.training.steps
        async with steps.standstill(what):
            yield
            await self.has(servers, workers)
        did, took = f"then {', '.join(sorted(servers))}", time.time() - began
        self.node.rows.append(Row(0.0, what, did, took, str(workers), longest=steps.stood[what]))

    async def has(self, servers: set[str], workers: int = 2) -> None:
        """Wait until exactly these pods run, and the workers train with these servers."""
        await self.site.until(lambda: self.job.running("ps") == servers)
        await self.site.until(lambda: len(self.job.running("worker")) == workers)
        addresses = {str(self.job.pods()[name].status.pod_ip) for name in servers}

        async def train() -> bool:
            lines = self.training.steps.lines()
            return bool(lines) and {each.partition(":")[0] for each in lines[-1][2:]} == addresses

        await until(train, f"the workers train with {servers}")

    async def scale(self, size: str) -> None:
        """elasticjob scale."""
        words = ("-m", "elasticjob.cli", "scale", "digits", size, "--namespace", self.site.namespace)
        config = f"--kubeconfig={self.node.kubectl.kubeconfig}"
        code, printed = await run(sys.executable, *words, config)
        assert code == 0, printed


async def test_a_job_with_servers_lives_through_every_change(
    node: Installation, site: Site, volume: Path
) -> None:
    await node.kubectl.apply(*furniture(site.namespace, COUNTER))
    play = Play(node, site, await submitted(site, spec()), Training(volume))
    await play.has({"ps-0", "ps-1", "ps-2"})
    await play.training.goes_on()
    async with play.standstill("servers 3 → 4", {"ps-0", "ps-1", "ps-2", "ps-3"}):
        await play.scale("ps=4")
    async with play.standstill("servers 4 → 2", {"ps-0", "ps-1"}):
        await site.plan("two", replicaResourceSpecs={"ps": {"replicas": 2}})
    async with play.standstill("a server moves", {"ps-0-1", "ps-1"}):
        moved = {"name": "digits-ps-0", "resource": {"ephemeral-storage": "64Mi"}}
        await site.plan("move", migratePods=[moved])
    async with play.standstill("a server is out of memory", {"ps-0-1", "ps-1-1"}):
        play.training.tell("hungry", "digits-ps-1")
    async with play.standstill("workers 2 → 4", {"ps-0-1", "ps-1-1"}, workers=4):
        await site.scale(4)
    async with play.standstill("a server is deleted", {"ps-0-1", "ps-1-1"}, workers=4):
        delete = ("delete", "pod", "digits-ps-0-1", "--force", "--grace-period=0")
        await node.kubectl("-n", site.namespace, *delete)
    async with play.standstill("workers 4 → 1", {"ps-0-1", "ps-1-1"}, workers=1):
        await site.scale(1)
    play.training.may_end()
    await site.until(play.job.has_ended("Complete"))
    assert await play.training.counts() == [1.0] * RECORDS
    reason = site.plans()["digits-ps-1-memory"].spec.reason
    assert reason == "digits-ps-1 was OOMKilled at 256Mi: ps gets 512Mi"


def spec() -> Manifest:
    """Return a job of three servers and two workers."""
    count = ["python3", f"/code/{COUNTER.name}", str(RECORDS), VOLUME, str(PACE)]
    limits = {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}}
    return with_servers(
        role(serving(Path(VOLUME)), resources=limits, replicas=3, minReplicas=1, maxReplicas=6),
        role(count, replicas=2, minReplicas=1, maxReplicas=4, autoScale=False),
    )
