"""Parts of `make bench-scale`: an operator that starts amid many pods, and one job with very many.

- *restart*: jobs without a master until all of their pods are made, many of which have still to run; then
  the operator is ended and started again. It is in step when it is ready and each job and JobResource had its
  pass.
- *one*: a job with a master. All of its workers run; a quarter of them are evicted at once; all run again.

    python -m benchmarks.services.large [--restart 5000x4] [--one 2000]
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import figures
from benchmarks.clients.load import MERGE, all_of
from benchmarks.figures import Sheet, number
from benchmarks.services.crowds import NAMESPACE, SHAPES
from benchmarks.services.scale import (
    PASSES,
    REQUESTS,
    Awaited,
    Stage,
    Usage,
    counted,
    followed,
    runs,
    serving,
    stage,
)
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.logs import configure
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.objects.views import POD
from lab.processes import end_on_sigterm, say

EVICTED: Final = {"status": {"phase": "Failed", "reason": "Evicted", "message": "the machine is full"}}
"""The end of lost pods. Of deleted ones kwok, which deletes by name, takes the successors, too, for ever."""
HOUR: Final = 3600.0
STILL: Final = 1.0
"""Seconds in which a job that has begun comes to rest."""
LOOK: Final = 0.1
TOLD: Final = 10.0
"""Seconds between lines of progress."""


@dataclass(frozen=True)
class Cost:
    """The cost of one phase, to the operator."""

    name: str
    seconds: float
    requests: int
    reads: int
    passes: int
    cpu_seconds: float
    megabytes: float


@dataclass(frozen=True)
class Large:
    """The phases of one measurement."""

    title: str
    phases: tuple[Cost, ...]

    def sheet(self) -> Sheet:
        """Return the table: a row for each phase."""
        heads = [self.title, "seconds", "requests", "of which GET", "passes", "operator CPU s", "RSS, MB"]
        return Sheet(
            heads, [[each.name, *map(number, list(asdict(each).values())[1:])] for each in self.phases]
        )


@dataclass
class Meter:
    """What the operator had used when a phase began."""

    on: Stage
    began: float
    used: Usage
    metrics: str

    @classmethod
    def start(cls, on: Stage, *, anew: bool = False) -> Meter:
        """Begin a phase; of an operator that is started `anew`, all that it has used counts."""
        used = Usage(0.0, 0) if anew else on.usage()["operator"]
        return cls(on, time.monotonic(), used, "" if anew else on.metrics())

    def cost(self, name: str, ended: float | None = None) -> Cost:
        """Return the cost of the phase."""
        seconds = (ended or time.monotonic()) - self.began
        used, says = self.on.usage()["operator"], self.on.metrics()
        requests = counted(says, *REQUESTS) - counted(self.metrics, *REQUESTS)
        passes = counted(says, *PASSES) - counted(self.metrics, *PASSES)
        say(f"  {name}: {seconds:.1f} s")
        return Cost(
            name,
            seconds,
            sum(requests.values()),
            requests["GET"],
            sum(passes.values()),
            used.cpu_seconds - self.used.cpu_seconds,
            used.rss / 1e6,
        )


async def restart(folder: Path, jobs: int, pods: int) -> Large:
    """Start an operator amid so many jobs with so many pods each."""
    shape = SHAPES["local"]
    async with stage(folder, operator=False) as bare:
        with serving(bare) as on:
            say(f"  {jobs:,} jobs of {pods:,} pods")
            made = Meter.start(on)
            whole = Awaited(jobs * pods, "pods")
            async with followed(on.client, POD, whole.seen(lambda pod: True)), told(whole.progress):
                path = ELASTICJOB.path(NAMESPACE)
                manifests = [shape.manifest(f"job-{n:05}", pods) for n in range(jobs)]
                await all_of([partial(on.server.send, "POST", path, manifest) for manifest in manifests])
                ended = await whole.all(HOUR)
            first = made.cost("made: all pods", ended)
        began = time.monotonic()
        with serving(bare) as on:
            again = Meter.start(on, anew=True)
            again.began = began
            second = again.cost("started again: ready")
            ended = await _in_step(on, jobs)
            third = again.cost("… in step", ended)
        return Large(f"{jobs:,} jobs × {pods:,} pods", (first, second, third))


async def _in_step(on: Stage, jobs: int) -> float:
    """Wait until each job and each JobResource had a pass; returns when that was."""
    done = 0
    async with told(lambda: f"{done:,} jobs and JobResources had a pass"):
        while True:
            passes = counted(await asyncio.to_thread(on.metrics), *PASSES)
            done = min(passes["elasticjob"], jobs) + min(passes["jobresource"], jobs)
            if done == 2 * jobs:
                return time.monotonic()
            await asyncio.sleep(LOOK)


async def one(folder: Path, workers: int) -> Large:
    """Start one job with so many workers, have it lose a quarter, and see it whole again."""
    shape, lost = SHAPES["master"], workers // 4
    async with stage(folder) as on:
        say(f"  one job of {workers:,} workers")
        here = Here()
        async with (
            followed(on.client, POD, here.seen),
            followed(on.client, ELASTICJOB, here.job),
            told(lambda: f"{len(here.running):,} pods run"),
        ):
            starts = Meter.start(on)
            await on.server.send("POST", ELASTICJOB.path(NAMESPACE), shape.manifest("large", workers))
            await here.until(lambda: len(here.running) == workers)
            pods = starts.cost("starts: all pods run")
            await here.until(lambda: here.whole)
            first = starts.cost("… and its status says so")
            await asyncio.sleep(2 * STILL)
            loses, gone = Meter.start(on), sorted(here.running)[:lost]
            here.forget(gone)
            paths = [f"{POD.path(NAMESPACE, pod)}/status" for pod in gone]
            await all_of(
                [partial(on.server.send, "PATCH", path, EVICTED, MERGE) for path in paths], at_once=32
            )
            await here.until(lambda: len(here.running) == workers)
            back = loses.cost(f"loses {lost:,}: all pods run")
            await here.until(lambda: here.whole)
            return Large(
                f"one job of {workers:,}", (pods, first, back, loses.cost("… and its status says so"))
            )


class Here:
    """The workers of one job that run, and whether its status says that all do."""

    def __init__(self) -> None:
        self.running: dict[str, str] = {}  # by name, the pod's uid
        self.whole = False
        self._former: set[str] = set()
        self._changed = asyncio.Event()

    def seen(self, cache: Cache[Any], change: Change) -> None:
        """Take a change of a pod."""
        item = change.new
        if item and "-worker-" in item.key.name and item.meta.uid not in self._former:
            if cache.view(item).status.phase == "Running":
                self.running[item.key.name] = item.meta.uid
        elif item is None and change.old and self.running.get(change.old.key.name) == change.old.meta.uid:
            del self.running[change.old.key.name]
        self._changed.set()

    def job(self, cache: Cache[Any], change: Change) -> None:
        """Take a change of the job."""
        self.whole = change.new is not None and runs(cache.view(change.new))
        self._changed.set()

    def forget(self, names: list[str]) -> None:
        """These pods are about to go."""
        self._former |= {self.running.pop(name) for name in names}
        self.whole = False

    async def until(self, holds: Callable[[], bool], patience: float = HOUR) -> None:
        """Wait until a condition holds. Raises TimeoutError."""
        async with asyncio.timeout(patience):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def told(words: Callable[[], str]) -> AsyncIterator[None]:
    """Say how far it is while the block lasts."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(TOLD)
            say(f"    {words()}")

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()


def main() -> None:
    """Measure and print the tables."""
    args = _arguments()
    end_on_sigterm()
    configure(quiet=True)
    sizes = [args.restart.split("x")] if args.restart else []
    measures: list[Callable[[Path], Coroutine[Any, Any, Large]]] = [
        partial(restart, jobs=int(jobs), pods=int(pods)) for jobs, pods in sizes
    ]
    measures += [partial(one, workers=args.one)] if args.one else []
    for measure in measures:
        with tempfile.TemporaryDirectory(prefix="bench-large-") as folder:
            figures.show(asyncio.run(measure(Path(folder, "plane"))).sheet())
        print(f"\n{figures.machine()}; made by")
        print(figures.command("benchmarks.services.large"), flush=True)


def _arguments() -> Namespace:
    parser = ArgumentParser(
        prog="python -m benchmarks.services.large", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--restart", default="5000x4", metavar="JOBSxPODS", help='(%(default)s; "" leaves it out)'
    )
    parser.add_argument("--one", type=int, default=2000, help="workers of the one job (%(default)s; 0: none)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
