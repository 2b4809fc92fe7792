"""A story of cluster mode, told on two stages: Brain sizes a job by what it learnt from an earlier one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from elasticjob.kube.objects.kinds import Manifest
from lab.jobs.job import Job
from lab.jobs.site import Site
from lab.waiting import until

PACED: Final = ("--seconds", "0.3", "0.15", "--steps", "2000", "--gate")
"""Flags of `lab/scripts/e2e/steps.py`: twice as fast with two workers as with one, until its gate opens."""


@dataclass(frozen=True)
class History:
    """Jobs of one role beside a Brain. All have one gate: Brain takes those of one command for alike."""

    site: Site
    url: str
    worker: Manifest
    gate: Path
    lose_brain: Callable[[], Awaitable[object]]
    """Kill it while the first job takes its second worker; it is back afterwards."""
    cpu: str = "2"
    headers: Mapping[str, str] = field(default_factory=dict)

    async def apply(self, name: str) -> None:
        """Create a job that the gate holds; it says of its sizes that there are at most two workers."""
        worker = {**self.worker, "minReplicas": 1, "maxReplicas": 2}
        limits = {"cpu": self.cpu, "memory": "8Gi"}
        spec = {"optimizeMode": "cluster", "resourceLimits": limits, "replicaSpecs": {"worker": worker}}
        await self.site.apply(spec, name)

    async def let_go(self, name: str) -> None:
        """Open the gate until a job is Complete."""
        self.gate.touch()
        await self.site.until(Job(self.site, name).has_ended("Complete"))
        self.gate.unlink()

    async def known(self, name: str) -> dict[str, Any]:
        """Return what Brain tells of a job; nothing while it is away."""
        url = f"{self.url}/v1/jobs/{self.site.namespace}/{name}"
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(url, headers=self.headers) as answer,
            ):
                return dict(await answer.json(content_type=None))
        except aiohttp.ClientError:
            return {}

    def reasons(self) -> list[str]:
        """Return those of all plans."""
        return [plan.spec.reason for plan in self.site.plans().values()]


async def tell(place: History) -> None:
    """Have one job grow, and another begin as the first one ended."""

    async def decisions(name: str) -> list[dict[str, Any]]:
        return list((await place.known(name)).get("decisions", []))

    async def is_grown() -> bool:
        decided = [each["algorithm"].split() for each in await decisions("first") if each["outcome"]]
        return any("worker-growth" in names for names in decided)

    async def is_learnt() -> bool:
        job = await place.known("first")
        return bool(job.get("completed") and job["samples"][-1]["nodes"])

    def is_told() -> bool:
        return any("1 completed job like it" in reason for reason in place.reasons())

    await place.apply("first")
    await until(is_grown, "Brain grows the job")
    await place.lose_brain()
    await place.let_go("first")
    await until(is_learnt, "Brain has seen the end")
    await place.apply("second")
    await until(is_told, "a plan of the second job tells why it has its sizes")
    first, second = await decisions("first"), await decisions("second")
    assert (first[0]["event"], first[0]["algorithm"]) == ("Start", "start"), first
    assert (second[0]["event"], second[0]["algorithm"]) == ("Start", "worker-from-history"), second
    reasons = place.reasons()
    assert any("worker-growth" in reason.partition(": ")[0].split() for reason in reasons), reasons
