"""examples/digits on a devcluster, watched: to its end, or endless while things happen to it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count, pairwise, takewhile
from random import Random
from typing import Any, Final

import aiohttp

from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.cli.demo.run import following
from elasticjob.cli.laptop.laptop import Laptop
from elasticjob.cli.story.example import ENDLESS, FILE, Example, load
from elasticjob.cli.story.processes import Process, main_of, of_job, of_pod, workers_of
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.stage import Real
from elasticjob.cli.story.watched import JobView
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.views import POD, Pod
from lab.story import Draws, Job, Length, Scene, Story, Weights

WORKERS: Final = 2
EPOCHS: Final = 25
SPAN: Final = 8.0
"""Seconds after the first step within which all kills of a job that ends happen."""
COMPLETE_WITHIN: Final = 120.0
GONE_WITHIN: Final = 90.0
PATIENCE: Final = 180.0
"""Seconds until a job is as it should be, on a busy machine."""
OPERATOR_AWAY: Final = (0.0, 2.0)
BETWEEN: Final = (6.0, 14.0)
"""Seconds of training after each trouble of a job whose seconds are counted."""
ACTS: Final = 5
WARM: Final = 8.0
"""Seconds until a node that was made again is warm."""


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


@dataclass
class Digits(Scene):
    """A job that trains, and all that is known of it; `end` and what follows are set when it is over."""

    here: Laptop
    job: Example
    watched: JobView
    chance: Random
    plan: Callable[[Digits, Weights], Draws]
    away: float = 0.0
    """For how long an operator that is killed now stays away."""
    wanted: Wanted = field(default_factory=Wanted)
    recoveries: list[float] = field(default_factory=list)
    """Seconds from the loss of a node to the next step with all workers."""
    account: dict[str, float] = field(default_factory=dict)
    wall: float = 0.0
    end: Seen = field(default_factory=Seen)
    status: ElasticJob | None = None
    left: Sequence[Process] = ()

    def draws(self, troubles: Weights) -> Draws:
        """Yield troubles, each at its moment."""
        return self.plan(self, troubles)

    @property
    def seen(self) -> Seen:
        """The job now."""
        return self.watched.seen

    @property
    def places(self) -> list[tuple[str, str]]:
        """The place of each live pod, and its name."""
        return [(pod.place, pod.name) for pod in self.seen.pods if pod.alive]

    @property
    def stage(self) -> Real:
        """The actions that change the job."""
        return Real(self.here.client, self.job, lambda: self.watched.seen)

    async def until(self, true: Callable[[Seen], bool], within: float = PATIENCE) -> None:
        """Wait until `true` is true of the job. TimeoutError after `within` seconds."""
        async with asyncio.timeout(within):
            while not true(self.watched.seen):
                await self.watched.change()

    async def goes_well(self, after: int) -> None:
        """Wait until all workers are there, and have made a step together that comes later."""
        places = {f"worker-{index}" for index in range(WORKERS)}
        await self.until(
            lambda seen: (
                {pod.place for pod in seen.workers} == places and seen.world == WORKERS and seen.step > after
            )
        )

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

    def processes(self, role: str) -> list[tuple[str, int]]:
        """Return pod and pid of each process that is a worker, an agent or a master."""
        pods = [p for p in self.seen.pods if "master" in p.role] if role == "master" else self.seen.workers
        trees = {pod.name: of_pod(pod.name, self.seen.uid) for pod in pods if pod.alive and not pod.leaving}
        found = {
            name: next(iter(workers_of(tree)), None) if role == "worker" else main_of(tree)
            for name, tree in trees.items()
        }
        return [(name, process.pid) for name, process in found.items() if process]

    async def kill(self, role: str) -> str:
        """SIGKILL the operator, which comes back after a while, or a process of the job."""
        if role == "operator":
            pid = await self.here.operator.kill()
            await asyncio.sleep(self.away)
            await self.here.operator.start()
            return f"killed the operator ({pid}), away for {self.away:.1f} s"
        found = self.processes(role)
        if not found:
            return ""
        pod, pid = found[-1] if role == "master" else self.chance.choice(found)
        os.kill(pid, signal.SIGKILL)
        return f"killed the {role} of {pod} ({pid})"

    def want(self, workers: int) -> None:
        """Note what the API server has just accepted."""
        self.wanted.become(time.time(), workers)

    async def pods(self) -> list[Pod]:
        """Return the pods of the job that have not ended, workers by age."""
        found = await self.here.client.list(POD, self.job.key.namespace)
        ended, prefix = ("Succeeded", "Failed"), f"{self.job.key.name}-"
        pods = [p for p in found if p.metadata.name.startswith(prefix) and p.status.phase not in ended]
        return sorted(pods, key=age)

    async def page(self) -> tuple[float, dict[str, Any]]:
        """Return the page of the job's master, and when it was asked; waits for a master."""
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError, LookupError, NotFound):
                    masters = [
                        pod.name
                        for pod in self.seen.pods
                        if "master" in pod.role and pod.alive and not pod.leaving
                    ]
                    pod = await self.here.client.get(POD, masters[-1], self.job.key.namespace)
                    async with session.get(f"http://{pod.status.pod_ip}:{MASTER_PORT}/status") as response:
                        return time.time(), await response.json()
                await asyncio.sleep(0.1)

    async def counted(self) -> float:
        """Note the account of the job's master, and how many seconds of workers were wanted until then."""
        at, page = await self.page()
        self.account, self.wall = account_of(page), self.wanted.seconds(at)
        return self.wall - sum(self.account.values())

    async def finish(self) -> None:
        """Note how the job is, delete it, and wait until all of it is gone."""
        client, key = self.here.client, self.job.key
        self.end, self.status = self.seen, await client.get(ELASTICJOB, key.name, key.namespace)
        await client.delete(ELASTICJOB, key.name, key.namespace)
        await self.until(lambda seen: not seen.pods, GONE_WITHIN)
        self.left = of_job(self.end.uid)
        self.figures |= {"steps": self.end.step, "worlds": self.end.round}


def account_of(page: dict[str, Any]) -> dict[str, float]:
    """Return the account on a master's page, without the causes that cost nothing."""
    seconds = {"productive": page["productiveSeconds"], **page["badputSeconds"]}
    return {cause: amount for cause, amount in seconds.items() if amount}


def age(pod: Pod) -> tuple[float, str]:
    """Sort key of pods: the oldest first."""
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0, pod.metadata.name


# what is drawn for each job


async def struck(scene: Digits, troubles: Weights) -> Draws:
    """So many kills, else one to three, within some seconds, each kind first in its turn; then to the end."""
    await scene.until(lambda seen: seen.step > 0)
    began, all_ = time.monotonic(), list(troubles)
    chance = Random(f"{scene.story.seed}/{scene.story.number}")
    certain, wanted = all_[scene.story.number % len(all_)], scene.story.length.troubles
    drawn = [certain, *chance.choices(all_, k=wanted - 1 if wanted else chance.randint(0, 2))]
    strikes = [(trouble, chance.uniform(0, SPAN), chance.uniform(*OPERATOR_AWAY)) for trouble in drawn]
    for trouble, after, away in sorted(strikes, key=lambda strike: strike[1]):
        with suppress(TimeoutError):  # a random moment is the point: nothing that happens announces it
            await scene.until(lambda seen: seen.holds("Complete"), began + after - time.monotonic())
            return
        scene.away = away
        yield trouble
    with suppress(TimeoutError):  # a truth says that it is not Complete
        await scene.until(lambda seen: seen.holds("Complete") or seen.holds("Failed"), COMPLETE_WITHIN)


async def in_turn(scene: Digits, troubles: Weights) -> Draws:
    """As many troubles as are wanted, in turn, each when the one before is over."""
    all_ = list(troubles)
    await scene.goes_well(5)
    for number in takewhile(scene.goes_on, count()):
        yield all_[number % len(all_)]
        await scene.goes_well(scene.seen.step + 5)


async def with_a_spare(scene: Digits, troubles: Weights) -> Draws:
    """As many rounds of troubles as are wanted, each when the spare is warm."""
    for _ in takewhile(scene.goes_on, count()):
        await scene.until(lambda seen: len(seen.workers) == WORKERS + 1 and seen.world == WORKERS)
        await asyncio.sleep(WARM)
        for trouble in troubles:
            yield trouble


async def accounted(scene: Digits, troubles: Weights) -> Draws:
    """Some troubles, each of them first in its turn; after each, the account is compared while it trains."""
    seed, number, all_ = scene.story.seed, scene.story.number, list(troubles)
    scene.want(WORKERS)
    drawn = [all_[number % len(all_)], *Random(f"{seed}-{number}").choices(all_, k=ACTS - 1)]
    for trouble in (None, *drawn):
        if trouble:
            yield trouble
        await scene.trains()
        scene.story.say(f"    {await scene.counted():.2f} s missing")
        await asyncio.sleep(scene.chance.uniform(*BETWEEN))
    await scene.counted()
    off = sum(scene.account.values()) / scene.wall - 1
    causes = {cause: f"{amount:.1f}" for cause, amount in scene.account.items()}
    scene.figures |= {"wall × workers": f"{scene.wall:.1f}", "deviation": f"{off:+.2%}", **causes}


# the jobs


def digits(
    name: str,
    about: str,
    example: Callable[[Example], Example],
    plan: Callable[[Digits, Weights], Draws],
    troubles: str,
    truths: tuple[str, ...],
    length: Length,
    clusters: tuple[str, ...] = ("devcluster",),
) -> Job:
    """Return a job of examples/digits; its troubles are equally frequent."""

    @asynccontextmanager
    async def opens(here: Laptop, story: Story) -> AsyncIterator[Digits]:
        scene: Digits | None = None

        def look(seen: Seen) -> None:
            if scene:
                story.look(scene)

        record = here.state / f"{name}-{story.number}.jsonl"
        job = example(load().rename(f"{name}-{story.number}").recording(record))
        async with following(here.client, job.key, record, look) as watched:
            chance = Random(f"{story.seed}-{story.number}-chances") if name == "account" else story.chance()
            messages = record.with_suffix(".messages")
            kept = (here.operator.log, record, messages)
            scene = Digits(here, job, watched, chance, plan, story=story, evidence=kept)
            await job.apply(here.client, "lab")
            try:
                yield scene
            finally:
                lines = (f"{each.at:.3f} {each.reason}: {each.sentence}\n" for each in watched.messages)
                messages.write_text("".join(lines))

    return Job(name, about, clusters, opens, Digits, dict.fromkeys(troubles.split(), 1), truths, length)


def to_the_end(example: Example) -> Example:
    """Return a job that ends."""
    return example.training(EPOCHS)


def endless(example: Example, **worker: object) -> Example:
    """Return a job that trains on and on, by the code of this checkout, and often saves."""
    job = deepcopy(example.training(ENDLESS).job)
    job["spec"]["envs"]["PYTHONPATH"] = {"value": str(FILE.parents[2])}
    job["spec"]["replicaSpecs"]["worker"] |= {"replicas": WORKERS, "minReplicas": 1, **worker}
    return replace(example, job=job)


def drained(example: Example, spares: int = 0) -> Example:
    """Return one with as many workers as it may have, which have time to leave."""
    made = endless(example, maxReplicas=WORKERS, spares=spares)
    made.workers["template"]["spec"]["terminationGracePeriodSeconds"] = 20
    return made


JOBS: Final = (
    digits(
        "digits",
        "trains to its end, through one to three kills",
        to_the_end,
        struck,
        "operator master agent worker",
        ("complete", "steps", "no-twins", "no-processes"),
        Length(stories=20),
    ),
    digits(
        "account",
        "trains through five troubles; its productive and lost seconds are all there were, by 1 %",
        lambda example: endless(example, maxReplicas=3, restartCount=100),
        accounted,
        "worker scale suspend slow-worker full-disk agent pod master",
        ("account", "no-twins"),
        Length(stories=10),
    ),
    digits(
        "drained",
        "trains while machines are drained, its master's too: no step is lost, no restart counted",
        drained,
        in_turn,
        "drain",
        ("no-step-lost", "no-restart", "no-twins"),
        Length(troubles=100),
        ("machines",),
    ),
    digits(
        "spare",
        "has a spare that takes the place of a lost agent within a second",
        lambda example: drained(example, spares=1),
        with_a_spare,
        "lost-agent",
        ("recovery",),
        Length(troubles=5),
        ("machines",),
    ),
)
