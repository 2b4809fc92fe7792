"""Parts of `make bench-scale`: an operator that starts amid many pods, and one job with very many.

- *restart*: jobs without a master until all of their pods are made, many of which have still to run; then
  the operator is ended and started again. It is in step when it is ready and each job and JobResource had its
  pass.
- *one*: a job with a master. All of its workers run; a quarter of them are evicted at once; all run again.

    python -m benchmarks.services.large --restart 5000x4 --one 2000
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from typer import BadParameter, Option

from benchmarks.clients.load import MERGE, all_of
from benchmarks.clients.plane import NAMESPACE, seen
from benchmarks.commands import numbers, play
from benchmarks.figures import Sheet, number, show
from benchmarks.services.crowds import WITH_MASTER, WITHOUT, elastic_job
from benchmarks.services.scale import Cost, Stage, runs, serving, stage
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.objects.views import POD, Pod
from lab.processes import say
from lab.running import beside

EVICTED: Final = {"status": {"phase": "Failed", "reason": "Evicted", "message": "the machine is full"}}
"""The end of lost pods. Of deleted ones kwok, which deletes by name, takes the successors, too, for ever."""
HOUR: Final = 3600.0
STILL: Final = 1.0
"""Seconds in which a job that has begun comes to rest."""
LOOK: Final = 0.1
TOLD: Final = 10.0
"""Seconds between lines of progress."""


@dataclass
class Phases:
    """The cost of each phase of one measurement to the operator, as a table."""

    title: str
    on: Stage = field(init=False)
    rows: list[list[str]] = field(default_factory=list)

    def begin(self, on: Stage, before: Cost | None = None) -> None:
        """The next phases begin now, and what the operator has used `before` does not count."""
        self.on, self._began, self._before = on, time.monotonic(), before or on.cost()

    def end(self, name: str, ended: float | None = None) -> None:
        """A phase has ended."""
        seconds = (ended or time.monotonic()) - self._began
        cost = self.on.cost().since(self._before)
        say(f"  {name}: {seconds:.1f} s")
        counts = [cost.requests.total(), cost.requests["GET"], cost.passes.total()]
        used = [cost.cpu_seconds["operator"], cost.megabytes["operator"]]
        self.rows.append([name, *map(number, [seconds, *counts, *used])])

    def sheet(self) -> Sheet:
        """Return the table."""
        heads = [self.title, "seconds", "requests", "of which GET", "passes", "operator CPU s", "RSS, MB"]
        return Sheet(heads, self.rows)


async def restart(folder: Path, jobs: int, pods: int) -> Phases:
    """Start an operator amid so many jobs with so many pods each."""
    phases, whole = Phases(f"{jobs:,} jobs × {pods:,} pods"), (jobs * pods, "pods")
    async with stage(folder, operator=False) as bare:
        with serving(bare) as on:
            say(f"  {jobs:,} jobs of {pods:,} pods")
            phases.begin(on)
            async with seen(on.client, POD, lambda pod: True) as there, told(lambda: there.progress(*whole)):
                path = ELASTICJOB.path(NAMESPACE)
                manifests = [elastic_job(f"job-{n:05}", WITHOUT, pods) for n in range(jobs)]
                await all_of([partial(on.server.send, "POST", path, manifest) for manifest in manifests])
                ended = await there.all(*whole, HOUR)
            phases.end("made: all pods", ended)
        phases.begin(bare, Cost())
        with serving(bare) as on:
            phases.on = on
            phases.end("started again: ready")
            phases.end("… in step", await _in_step(on, jobs))
        return phases


async def _in_step(on: Stage, jobs: int) -> float:
    """Wait until each job and each JobResource had a pass; returns when that was."""
    done = 0
    async with told(lambda: f"{done:,} jobs and JobResources had a pass"):
        while done < 2 * jobs:
            passes = (await asyncio.to_thread(on.cost)).passes
            done = min(passes["elasticjob"], jobs) + min(passes["jobresource"], jobs)
            if done < 2 * jobs:
                await asyncio.sleep(LOOK)
        return time.monotonic()


async def one(folder: Path, workers: int) -> Phases:
    """Start one job with so many workers, have it lose a quarter, and see it whole again."""
    phases, lost, all_run = Phases(f"one job of {workers:,}"), workers // 4, f"{workers:,} workers run"
    async with stage(folder) as on:
        say(f"  one job of {workers:,} workers")
        async with (
            seen(on.client, POD, _is_running_worker) as pods,
            seen(on.client, ELASTICJOB, runs) as jobs,
            told(lambda: f"{len(pods.good):,} pods run"),
        ):
            phases.begin(on)
            manifest = elastic_job("large", WITH_MASTER, workers)
            await on.server.send("POST", ELASTICJOB.path(NAMESPACE), manifest)
            await pods.all(workers, "workers", HOUR)
            phases.end("starts: all pods run")
            await jobs.all(1, "jobs", HOUR)
            phases.end("… and its status says so")
            await asyncio.sleep(2 * STILL)
            phases.begin(on)
            gone = {*sorted(pods.good, key=pods.made.__getitem__)[:lost]}
            jobs.good.clear()  # what it has said so far does not count
            paths = [f"{POD.path(NAMESPACE, pods.made[uid])}/status" for uid in gone]
            await all_of(
                [partial(on.server.send, "PATCH", path, EVICTED, MERGE) for path in paths], at_once=32
            )
            await pods.until(lambda: len(pods.good - gone) == workers, all_run, HOUR)
            phases.end(f"loses {lost:,}: all pods run")
            await jobs.all(1, "jobs", HOUR)
            phases.end("… and its status says so")
        return phases


def _is_running_worker(pod: Pod) -> bool:
    return "-worker-" in pod.metadata.name and pod.status.phase == "Running"


@asynccontextmanager
async def told(words: Callable[[], str]) -> AsyncIterator[None]:
    """Say how far it is while the block lasts."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(TOLD)
            say(f"    {words()}")

    async with beside(tell()):
        yield


async def main(
    restarts: Annotated[str, Option("--restart", metavar="JOBSxPODS", help='"" leaves it out')] = "5000x4",
    workers: Annotated[int, Option("--one", min=0, help="workers of the one job; 0: none")] = 2000,
) -> None:
    """Measure and print the tables."""
    measures: list[Callable[[Path], Coroutine[Any, Any, Phases]]] = []
    if restarts:
        jobs, *pods = numbers(restarts, "x")
        if len(pods) != 1:
            raise BadParameter(f"{restarts!r} is not JOBSxPODS, as 5000x4")
        measures.append(partial(restart, jobs=jobs, pods=pods[0]))
    if workers:
        measures.append(partial(one, workers=workers))
    for measure in measures:
        with tempfile.TemporaryDirectory(prefix="bench-large-") as folder:
            show((await measure(Path(folder, "plane"))).sheet())


if __name__ == "__main__":
    play(main)
