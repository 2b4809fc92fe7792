"""One soak: the operator as a process, a fault proxy to the server, users, and the result."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from elasticjob.cli.laptop.laptop import OperatorProcess
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.testing import FaultProxy
from lab.chaos.soak.gauges import Sample, held, metrics_of
from lab.chaos.soak.players import Eyes, Kubelet, Users, make_namespace
from lab.chaos.soak.weather import Crash, Weather
from lab.chaos.soak.world import World, leftovers, twins, unfinished

NAMESPACE = "soak"
BETWEEN_DEEDS = (0.05, 0.4)
EACH = 1.0
"""Seconds between two samples."""
LOOK = 0.05
"""Seconds between two looks at the world while it is waited for."""
PATIENCE, EMPTY_WITHIN, SETTLED_WITHIN = 120.0, 120.0, 45.0


@dataclass(frozen=True)
class Options:
    """Settings of a soak."""

    minutes: float = 10.0
    jobs: int = 200
    seed: int = 0
    pace: float = 1.0
    """Factor of the pauses between faults, and between what users do."""
    faults: int = 1
    """How many requests have a fault before the weather is fine, also on a machine too busy to make many."""


@dataclass
class Outcome:
    """The measurements; `wrong` has a sentence for each violation."""

    samples: list[Sample] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    """When faults and deeds began and ended, in seconds of the soak."""
    filled_in: float = 0.0
    converged_in: float = 0.0
    collected_in: float = 0.0
    emptied_in: float = 0.0
    empty: tuple[Sample, ...] = ()
    """Before the first job, and after the last."""
    faults: Counter[str] = field(default_factory=Counter)
    episodes: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Soak:
    """All that takes part, while it runs."""

    operator: OperatorProcess
    session: aiohttp.ClientSession
    eyes: Eyes
    outcome: Outcome
    start: float

    def now(self) -> float:
        return time.monotonic() - self.start

    async def sample(self) -> Sample:
        """Look at the operator now."""
        world = self.eyes.look()
        rss, files, connections, inbound, threads = held(self.operator.pid)
        metrics = await metrics_of(self.session, self.operator.url)
        self.outcome.metrics = metrics
        tasks = int(metrics.get("elasticjob_kube_tasks", 0))
        wrong = sum(1 for _ in unfinished(world))
        found = Sample(self.now(), rss, files, connections, inbound, threads, tasks, len(world.jobs), wrong)
        self.outcome.samples.append(found)
        return found

    async def watch(self) -> None:
        """Sample for ever, and note what must never be seen."""
        while True:
            await self.sample()
            for sentence in twins(self.eyes.look()):
                if sentence not in self.outcome.wrong:
                    self.outcome.wrong.append(sentence)
            await asyncio.sleep(EACH)

    async def until_none(self, what: Callable[[World], Iterable[str]], within: float) -> float:
        """Return the seconds until `what` returns nothing; its last results count as violations."""
        began = self.now()
        while found := list(what(self.eyes.look())):
            if self.now() - began > within:
                self.outcome.wrong += [f"after {within:.0f} s {each}" for each in found[:20]]
                break
            await asyncio.sleep(LOOK)
        return self.now() - began


async def soak(
    config: Config, state: Path, options: Options, crash: Crash | None, say: Callable[[str], None]
) -> Outcome:
    """Run a soak; `config` has an administrator's rights: CRDs and a namespace are created."""
    chance, outcome = random.Random(options.seed), Outcome()
    async with Client(config, user_agent="soak") as client, FaultProxy(config, seed=options.seed) as proxy:
        await install(client)
        await make_namespace(client, NAMESPACE)
        eyes = Eyes(client, NAMESPACE)
        # the same weather however busy the machine
        weather = Weather(proxy, random.Random(options.seed), crash, options.pace)
        users = Users(client, eyes, chance, options.jobs)
        async with eyes.open(), running(proxy, state, eyes, outcome) as it:
            before = await settled(it, None)
            async with background(Kubelet(client, eyes, chance).run(), it.watch()):
                say(f"{options.jobs} jobs are applied")
                await users.fill()
                outcome.filled_in = await it.until_none(unfinished, PATIENCE)
                say(f"all run after {outcome.filled_in:.1f} s; {options.minutes:g} minutes of bad weather")
                await storm(it, weather, users, options, chance)
                say("the weather is fine")
                outcome.converged_in = await it.until_none(unfinished, PATIENCE)
                outcome.collected_in = outcome.converged_in + await it.until_none(leftovers, PATIENCE)
                say(f"all as specified after {outcome.converged_in:.1f} s; all jobs are deleted")
                await users.delete_all()
                outcome.emptied_in = await it.until_none(anything, EMPTY_WITHIN)
                after = await settled(it, before)
        outcome.empty = (before, after)
        outcome.faults, outcome.episodes = proxy.counts, weather.saw
        outcome.deeds = Counter(users.did)
    outcome.wrong += leaks(before, after) + broken(outcome.metrics)
    return outcome


async def storm(it: Soak, weather: Weather, users: Users, options: Options, chance: random.Random) -> None:
    """Inject faults and run users for the given time, and until the last user action is done."""
    it.outcome.began = it.now()
    async with background(weather.run()):
        while it.now() - it.outcome.began < options.minutes * 60 or weather.faults < options.faults:
            await users.act()
            # users come when they like
            await asyncio.sleep(chance.uniform(*BETWEEN_DEEDS) * options.pace)
    weather.clear()
    it.outcome.ended = it.now()


def anything(world: World) -> Iterable[str]:
    """A sentence for each object that there is of any job."""
    yield from (f"{name} is there" for name in world.jobs)
    yield from leftovers(world)


async def settled(it: Soak, before: Sample | None) -> Sample:
    """Return a sample once the resources have returned to `before`, or else have settled."""
    if before is None:
        await asyncio.sleep(2 * EACH)  # the operator counts its tasks twice a second
        return await it.sample()
    until = it.now() + SETTLED_WITHIN
    while True:
        found = await it.sample()
        if it.now() > until or not leaks(before, found):
            return found
        await asyncio.sleep(EACH)


def leaks(before: Sample, after: Sample) -> list[str]:
    """Return the resources held after the last job that were not held before the first."""
    pairs = {
        "tasks": (before.tasks - before.inbound, after.tasks - after.inbound),
        "open files": (before.files - before.inbound, after.files - after.inbound),
        "connections": (before.connections, after.connections),
        "threads": (before.threads, after.threads),
    }
    slack = {"threads": 32}  # the executor's, which are made when first needed and kept
    return [
        f"{after_} {name} at the end, {before_} at the start"
        for name, (before_, after_) in pairs.items()
        if after_ > before_ + slack.get(name, 0)
    ]


def broken(metrics: dict[str, float]) -> list[str]:
    """Log lines that no fault excuses."""
    panics = metrics.get("controller_runtime_reconcile_panics_total", 0)
    terminal = metrics.get("controller_runtime_terminal_reconcile_errors_total", 0)
    found = [f"{panics:.0f} runs broke unexpectedly"] if panics else []
    return found + ([f"{terminal:.0f} runs gave up"] if terminal else [])


@asynccontextmanager
async def running(proxy: FaultProxy, state: Path, eyes: Eyes, outcome: Outcome) -> AsyncIterator[Soak]:
    """Run the operator behind the proxy; it must be the same process at the end."""
    operator = OperatorProcess(proxy.write_kubeconfig(state / "proxy.kubeconfig"), state / "operator.log")
    try:
        await operator.start()
        await operator.ready()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield Soak(operator, session, eyes, outcome, time.monotonic())
    finally:
        await operator.stop()


@asynccontextmanager
async def background(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines beside the block; they end with it, and an error of theirs ends it."""
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(part) for part in parts]
        try:
            yield
        finally:
            for task in beside:
                task.cancel()
