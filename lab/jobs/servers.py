"""A TensorFlow job over servers on a devcluster, and how often each of its records counts.

A record may count twice if a worker was killed or stopped in its step, or its server was cut off: at most a
batch for each of these workers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from random import Random
from typing import Final

from lab.clusters.forked import Stage, stage_in
from lab.jobs.job import Job as Pods
from lab.jobs.site import Site
from lab.jobs.training.forking import process_of
from lab.jobs.training.over_servers import counts, kept, spec
from lab.story import Draws, Job, Scene, Story, Truth, Weights
from lab.truths.steps import Steps
from lab.waiting import until

BATCH: Final = 100
RECORDS_FOR_A_KILL: Final = 20_000


@dataclass
class Servers(Scene):
    """The job, and its folder; `spoilt` steps may count twice."""

    site: Site
    job: Pods
    folder: Path
    pids: Path
    chance: Random
    steps: Steps
    plans: int = 0
    spoilt: int = 0
    counts: list[int] = field(default_factory=list)
    """How many records count 0 times, once and twice, and the most times."""

    @property
    def records(self) -> int:
        """How many there are: enough for all kills."""
        return RECORDS_FOR_A_KILL * (self.story.length.troubles + 2)

    def some(self, role: str, most: int = 1) -> list[str]:
        """Return running pods of a role, at random."""
        pods = sorted(self.job.running(role))
        return self.chance.sample(pods, min(most, len(pods)))

    def signal(self, pod: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process of a pod, unless it has ended already."""
        try:
            os.kill(process_of(self.pids, f"{self.job.name}-{pod}"), number)
        except (ProcessLookupError, FileNotFoundError):
            self.story.say(f"{pod} had ended already")

    def chief(self) -> str:
        """Return the first worker, as it said itself; any other, if that has gone."""
        said = (self.folder / "chief").read_text().removeprefix(f"{self.job.name}-")
        return said if said in self.job.running() else self.some("worker")[0]

    async def soon(self) -> None:
        """Let less than a second pass."""
        await asyncio.sleep(self.chance.random() * 0.6)

    async def change(self) -> asyncio.Task[None]:
        """Begin a change of the number of servers."""
        self.plans += 1
        replicas = {"ps": {"replicas": self.chance.choice((2, 3, 4))}}
        return asyncio.create_task(self.site.plan(f"plan-{self.plans}", replicaResourceSpecs=replicas))

    async def draws(self, troubles: Weights) -> Draws:
        """Yield each trouble in turn, then any."""
        (self.folder / "kept").mkdir()
        wanted, rows = spec(self.folder, self.records, 20_000), list(troubles)
        for role in wanted["replicaSpecs"].values():
            role["restartCount"] = 100
        await self.site.apply(wanted)
        await self.steps.more()
        (self.folder / "save").touch()
        await until(partial(kept, self.folder), "a checkpoint")
        for number in takewhile(self.goes_on, count()):
            yield rows[number] if number < len(rows) else self.chance.choice(rows)
            if self.chance.random() < 0.3:
                (self.folder / "save").touch()

    async def finish(self) -> None:
        """Let the job come to its end, and count."""
        (self.folder / "gate").touch()
        await self.site.until(self.job.has_ended("Complete"))
        self.counts = await asyncio.to_thread(counts, self.folder)
        never, once, twice, _ = self.counts
        self.figures |= {"records": self.records, "once": once, "never": never, "twice": twice}
        self.figures["workers killed, stopped or cut off"] = self.spoilt


@asynccontextmanager
async def forked(folder: Path, job: Job) -> AsyncIterator[Stage]:
    """Start a devcluster whose processes are forked from one that imported TensorFlow."""
    async with stage_in(folder, "kills") as stage:
        yield stage


@asynccontextmanager
async def opened(at: Stage, story: Story) -> AsyncIterator[Servers]:
    """Begin a job."""
    chance, steps, pods = story.chance(), Steps(at.run), Pods(at.site)
    yield Servers(at.site, pods, at.run, at.pids, chance, steps, story=story, evidence=(at.run,))


def once_or_spoilt(scene: Servers) -> list[str]:
    """No record is lost, and none counts twice without a cause."""
    never, once, *_ = scene.counts
    wrong = [f"{never} records are counted never"] if never else []
    more = scene.records - once
    return [*wrong, f"{more} records count more than once"] if more > BATCH * scene.spoilt else wrong


TRUTHS: Final = (Truth("spoilt-alone", once_or_spoilt),)
