"""Faults and resizes of jobs that train, with one system; each function returns the figures of one run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from benchmarks.clients.plane import NAMESPACE
from benchmarks.shared.scene import ONE, TEAM_A, TEAM_B, Refused, Taken
from benchmarks.shared.systems import Asked
from benchmarks.shared.training.scene import OnNode, Training
from elasticjob.kube.objects.views import POD

AGAIN: Final = "until 3 train, s"
STAYS: Final = 20.0
"""Seconds that the other team's job runs."""


async def deleted_pod(on: OnNode, round_: int) -> Taken:
    """A pod of a job of three is deleted without grace."""
    async with on.training(Asked(f"deleted-{round_}", 3, 1, ONE)) as job:
        victim = on.newest(job.asked.name)
        return await _three_again(job, lambda: on.client.delete(POD, victim, NAMESPACE, grace=0))


async def killed_process(on: OnNode, round_: int) -> Taken:
    """SIGKILL of the process that trains in a pod of a job of three."""
    async with on.training(Asked(f"killed-{round_}", 3, 1, ONE)) as job:
        return await _three_again(job, lambda: on.kill(on.newest(job.asked.name)))


async def reclaimed(on: OnNode, round_: int) -> Taken:
    """A job of three has borrowed a GPU of another team, whose job comes and stays for a while."""
    owner = Asked(f"owner-{round_}", 1, 1, TEAM_B, brief=True)
    async with on.training(Asked(f"borrower-{round_}", 3, 1, TEAM_A)) as job:
        async with job.measured() as taken:
            before, began = job.round, time.monotonic()
            async with on.job(owner, 0):
                runs = await on.runs(owner.name, 1)
                taken.seconds["until the other team's job runs, s"] = runs - began
                await asyncio.sleep(STAYS)
                taken.counts["workers while it runs"] = len(on.pods.running(job.asked.name))
            await job.trains(None, before)
        return taken


async def resized(on: OnNode, round_: int) -> Taken:
    """A user asks for 3 workers in the place of 2; refused, the user deletes the job and makes it anew."""
    asked, refusals = Asked(f"resized-{round_}", 2, 1, ONE), list[str]()

    async def resize() -> None:
        try:
            await on.resize(asked.name, 3)
        except Refused as refused:
            refusals.append(str(refused))
            await on.end(asked.name)
            await on.create(replace(asked, workers=3))

    async with on.training(asked) as job:
        return replace(await _three_again(job, resize), refused=" ".join(refusals))


async def _three_again(job: Training, blow: Callable[[], Awaitable[object]]) -> Taken:
    async with job.measured() as taken:
        before, began = job.round, time.monotonic()
        await blow()
        await job.trains(3, before)
        taken.seconds[AGAIN] = time.monotonic() - began
    return taken


Scenario = Callable[[OnNode, int], Awaitable[Taken]]
SCENARIOS: Final[Mapping[str, tuple[str, Scenario]]] = {
    "delete": ("a pod of 3 is deleted", deleted_pod),
    "kill": ("a process of 3 is killed", killed_process),
    "reclaim": ("1 borrowed GPU of 3 is taken back", reclaimed),
    "resize": ("2 → 3 workers", resized),
}
