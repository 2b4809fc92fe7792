"""`make chaos-training`, in part: in random stories of a job, productive and lost seconds are all there were.

Each story is a job in a cluster of this machine, with real agents and workers, to which some things happen:
a worker, an agent or the master is killed, a pod deleted; it is scaled, suspended and resumed; a worker is
slow; the storage of its checkpoints is full. Meanwhile this program notes how many workers are wanted since
when, as the API server accepts it. At the end that is compared with the sum of the job's account:

    productive + badput by cause = wall time × workers, ± 1 %

    python -m lab.chaos.goodput --stories 10 --seed 7

Exits with 1 if that was not so in a story.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil
from rich.console import Console
from rich.table import Table

from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.demo.run import following
from elasticjob.cli.laptop.laptop import Laptop, laptop
from elasticjob.cli.story.example import ENDLESS, FILE, Example, load
from elasticjob.cli.story.processes import main_of, of_pod, workers_of
from elasticjob.cli.story.seen import Seen, is_suspended
from elasticjob.cli.story.stage import Real
from elasticjob.cli.story.watched import JobView
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.views import POD

WORKERS: Final = 2
ACTS: Final = 5
"""Things that happen in a story."""
BETWEEN: Final = (6.0, 14.0)
"""Seconds of training after each."""
SUSPENDED: Final = (3.0, 8.0)
SLOW: Final = 10.0
FULL: Final = 4.0
"""Seconds for which a worker is slow, and for which storage is full after a checkpoint has failed."""
TURN: Final = (0.12, 0.03)
"""Seconds in which a slow worker stands, and in which it computes, again and again."""
LARGEST: Final = 1 << 18
"""Bytes of a file on full storage: less than a checkpoint has, more than a log."""
PATIENCE: Final = 180.0
"""Seconds until the job trains again, on a busy machine."""
WITHIN: Final = 0.01


@dataclass
class Wanted:
    """How many workers are wanted, and since when."""

    changes: list[tuple[float, int]] = field(default_factory=list)

    def become(self, at: float, workers: int) -> None:
        """Note that so many are wanted from now on."""
        self.changes.append((at, workers))

    @property
    def now(self) -> int:
        """How many are wanted now."""
        return self.changes[-1][1]

    def seconds(self, until: float) -> float:
        """Return the seconds of all workers."""
        ends = [*self.changes, (until, 0)]
        return sum((after - since) * workers for (since, workers), (after, _) in pairwise(ends))


@dataclass(frozen=True)
class Scene:
    """A job, who watches it, and what is wanted of it."""

    here: Laptop
    job: Example
    watched: JobView
    wanted: Wanted
    chance: random.Random

    @property
    def seen(self) -> Seen:
        """The job now."""
        return self.watched.seen

    @property
    def stage(self) -> Real:
        """Return the actions that change the job."""
        return Real(self.here.client, self.job, lambda: self.watched.seen)

    def want(self, workers: int) -> None:
        """Note what the API server has just accepted."""
        self.wanted.become(time.time(), workers)

    async def until(self, true: Callable[[Seen], bool]) -> None:
        """Wait until `true` is true of the job. TimeoutError after PATIENCE."""
        async with asyncio.timeout(PATIENCE):
            while not true(self.watched.seen):
                await self.watched.change()

    async def trains(self) -> None:
        """Wait until as many workers as are wanted make steps."""
        since, step = time.time(), self.seen.step
        await self.until(
            lambda seen: bool(
                seen.last
                and seen.last.at > since
                and seen.world == self.wanted.now
                and seen.step > min(step, seen.last.step - 1)
            )
        )

    def pid(self, pod: str, *, worker: bool) -> int:
        """Return the process of a pod: its worker, or its agent or master."""
        tree = of_pod(pod, self.seen.uid)
        found = (workers_of(tree) or (None,))[0] if worker else main_of(tree)
        if found is None:
            raise ProcessLookupError(f"pod {pod} has no such process")
        return found.pid

    def member(self) -> str:
        """Return the pod of a random worker."""
        return self.chance.choice(self.seen.workers).name


async def start(scene: Scene) -> str:
    await scene.job.apply(scene.here.client, "stories")
    scene.want(WORKERS)
    return "started"


async def kill_worker(scene: Scene) -> str:
    os.kill(scene.pid(scene.member(), worker=True), signal.SIGKILL)
    return "worker killed"


async def kill_agent(scene: Scene) -> str:
    os.kill(scene.pid(scene.member(), worker=False), signal.SIGKILL)
    return "agent killed"


async def delete_pod(scene: Scene) -> str:
    with suppress(NotFound):
        await scene.here.client.delete(POD, scene.member(), scene.job.key.namespace)
    return "pod deleted"


async def kill_master(scene: Scene) -> str:
    os.kill(scene.pid(master_of(scene.seen), worker=False), signal.SIGKILL)
    await told(scene)
    return "master killed"


async def scale(scene: Scene) -> str:
    before = scene.wanted.now
    after = scene.chance.choice([size for size in (1, 2, 3) if size != before])
    await scene.stage.scale(after)
    scene.want(after)
    return f"scaled {before} → {after}"


async def suspend(scene: Scene) -> str:
    before = scene.wanted.now
    await scene.stage.suspend()
    scene.want(0)
    await scene.until(lambda seen: is_suspended(seen, seen))
    await asyncio.sleep(scene.chance.uniform(*SUSPENDED))
    await scene.stage.resume()
    scene.want(before)
    return "suspended"


async def slow_down(scene: Scene) -> str:
    """Let a worker stand most of the time, as on a machine that is throttled."""
    process = psutil.Process(scene.pid(scene.member(), worker=True))
    until = time.monotonic() + SLOW
    with suppress(psutil.NoSuchProcess):
        try:
            while time.monotonic() < until:
                process.suspend()
                await asyncio.sleep(TURN[0])
                process.resume()
                await asyncio.sleep(TURN[1])
        finally:
            process.resume()
    return "slow worker"


async def fill_disk(scene: Scene) -> str:
    """Let agents, which write checkpoints to storage, write no large file: a full mount would need root."""
    agents = [psutil.Process(scene.pid(pod.name, worker=False)) for pod in scene.seen.workers]
    try:
        for agent in agents:
            agent.rlimit(psutil.RLIMIT_FSIZE, (LARGEST, resource.RLIM_INFINITY))
        async with asyncio.timeout(PATIENCE):
            while not (await status_of(scene))[1]["checkpoint"].get("error"):  # noqa: ASYNC110  # others fail
                await asyncio.sleep(0.2)
        await asyncio.sleep(FULL)
    finally:
        for agent in agents:
            with suppress(psutil.NoSuchProcess):
                agent.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "full disk"


Act = Callable[[Scene], Awaitable[str]]
HAPPENS: Final[tuple[Act, ...]] = (
    kill_worker,
    scale,
    suspend,
    slow_down,
    fill_disk,
    kill_agent,
    delete_pod,
    kill_master,
)


@dataclass(frozen=True)
class Outcome:
    """A story: what happened, the seconds that its workers were wanted, and where the account has them."""

    events: Sequence[str]
    wall: float
    account: Mapping[str, float]

    @property
    def deviation(self) -> float:
        """How far the account is from what was wanted, as a share."""
        return sum(self.account.values()) / self.wall - 1


def acts(seed: int, number: int) -> list[Act]:
    """Return what happens in a story; each act begins a story in turn, the others are random."""
    chance = random.Random(f"{seed}-{number}")
    return [HAPPENS[number % len(HAPPENS)], *chance.choices(HAPPENS, k=ACTS - 1)]


def master_of(seen: Seen) -> str:
    """Return the name of the pod of the master that runs."""
    found = [pod.name for pod in seen.pods if "master" in pod.role and pod.alive and not pod.leaving]
    return found[-1]


def account_of(status: Mapping[str, Any]) -> dict[str, float]:
    """Return the account on a master's page, the causes of which there is none left out."""
    seconds = {"productive": status["productiveSeconds"], **status["badputSeconds"]}
    return {cause: amount for cause, amount in seconds.items() if amount}


async def told(scene: Scene) -> tuple[float, dict[str, float]]:
    """Return the account of the job's master, and when it was asked."""
    at, status = await status_of(scene)
    return at, account_of(status)


async def status_of(scene: Scene) -> tuple[float, dict[str, Any]]:
    """Return the page of the job's master, and when it was asked; waits for a master."""
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError, LookupError, NotFound):
                name = master_of(scene.seen)
                pod = await scene.here.client.get(POD, name, scene.job.key.namespace)
                async with session.get(f"http://{pod.status.pod_ip}:{MASTER_PORT}/status") as response:
                    return time.time(), await response.json()
            await asyncio.sleep(0.1)


async def play(here: Laptop, seed: int, number: int) -> Outcome:
    """Play a story from the job's creation on; the job is gone afterwards."""
    record = here.state / f"story-{number}.jsonl"
    job = example(f"story-{number}", record)
    chance = random.Random(f"{seed}-{number}-chances")
    async with following(here.client, job.key, record) as watched:
        scene, events = Scene(here, job, watched, Wanted(), chance), list[str]()
        for act in (start, *acts(seed, number)):
            events.append(await act(scene))
            await scene.trains()
            at, account = await told(scene)
            missing = scene.wanted.seconds(at) - sum(account.values())
            print(f"{number + 1}: {events[-1]}: {missing:.2f} s missing", flush=True)
            await asyncio.sleep(chance.uniform(*BETWEEN))
        at, account = await told(scene)
        await here.client.delete(ELASTICJOB, job.key.name, job.key.namespace)
        await scene.until(lambda seen: not seen.pods)
    return Outcome(events[1:], scene.wanted.seconds(at), account)


def example(name: str, record: Path) -> Example:
    """Return the job, which trains on and on and often saves."""
    made = load().rename(name).recording(record).training(ENDLESS)
    job = deepcopy(made.job)
    job["spec"]["envs"]["PYTHONPATH"] = {"value": str(FILE.parents[2])}
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker |= {"replicas": WORKERS, "minReplicas": 1, "maxReplicas": 3, "restartCount": 100}
    return replace(made, job=job)


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return what came out: seconds of workers, by cause."""
    causes = sorted({cause for outcome in outcomes for cause in outcome.account} - {"productive"})
    made = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("STORY", "EVENTS"):
        made.add_column(name)
    for name in ("WALL × WORKERS", "PRODUCTIVE", *map(str.upper, causes), "DEVIATION"):
        made.add_column(name, justify="right")
    for number, outcome in enumerate(outcomes, 1):
        amounts = (outcome.account.get(cause) for cause in ("productive", *causes))
        cells = ("–" if amount is None else f"{amount:.1f}" for amount in amounts)
        deviation = f"{outcome.deviation:+.2%}"
        made.add_row(str(number), ", ".join(outcome.events), f"{outcome.wall:.1f}", *cells, deviation)
    return made


async def run(stories: int, seed: int, console: Console) -> list[Outcome]:
    """Play stories one after another in one cluster."""
    state = Path(tempfile.mkdtemp(prefix="elasticjob-stories-"))
    outcomes = list[Outcome]()
    try:
        async with laptop(state) as here:
            for number in range(stories):
                outcomes.append(await play(here, seed, number))
                last = outcomes[-1]
                console.print(f"{number + 1}: {', '.join(last.events)}: {last.deviation:+.2%}", style="dim")
    finally:
        shutil.rmtree(state, ignore_errors=True)
    return outcomes


def main() -> int:
    """Run from the command line; return the exit code."""
    parser = ArgumentParser(prog="python -m lab.chaos.goodput", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stories", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 220)
    console.print(f"account: {options.stories} stories, --seed {options.seed}")
    outcomes = asyncio.run(run(options.stories, options.seed, console))
    console.print(table(outcomes))
    wrong = [outcome for outcome in outcomes if abs(outcome.deviation) > WITHIN]
    console.print(f"{len(outcomes) - len(wrong)} of {len(outcomes)} accounts are within {WITHIN:.0%}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
