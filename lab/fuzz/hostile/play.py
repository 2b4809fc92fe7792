"""Plays the hostile tenant against all of our programs on a devcluster, and judges."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import aiohttp

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from lab.fuzz.hostile.neighbour import Neighbour
from lab.fuzz.hostile.oracle import CHECKS, Use, Watched, grown, restarted, used
from lab.fuzz.hostile.programs import Installed, installed
from lab.fuzz.hostile.pulse import Pulse
from lab.fuzz.hostile.tenant import HOME, JOBS, OWNED, Tenant, believed, drawn, stolen, taken_over

PAUSE: Final = 0.25
"""Seconds between two actions, at most: our programs are to see many states, not only the last one."""
EMPTY_WITHIN: Final = 60.0
KEPT: Final = 6
"""Actions before a wrong one that are shown with it."""
ROOM: Final = {"cpu": "1000", "memory": "1000Gi", "pods": "250", "ephemeral-storage": "1000Gi"}
"""Nobody's pods stand in another's way."""


@dataclass(frozen=True)
class Wrong:
    """Something that must not happen, and the action during which it was seen."""

    number: int
    action: str
    about: str
    sentence: str


@dataclass
class Played:
    """What came of a run."""

    seed: str
    actions: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[Wrong] = field(default_factory=list)
    wrong_kinds: Counter[str] = field(default_factory=Counter)
    """Sentences without their numbers and ends."""
    kinds: Counter[str] = field(default_factory=Counter)
    lines: dict[str, str] = field(default_factory=dict)
    before: Mapping[str, Use] = field(default_factory=dict)
    after: Mapping[str, Use] = field(default_factory=dict)
    scaled: list[float] = field(default_factory=list)
    slowest: float = 0.0
    steps: int = 0
    calls: int = 0
    seconds: float = 0.0


@dataclass
class Stage:
    """The run as it goes: the number of the action, what it is, and what is wrong so far."""

    played: Played
    tell: Callable[[str], None]
    programs: Installed
    number: int = 0
    action: str = ""
    about: str = ""
    recent: list[str] = field(default_factory=list)

    def wrong(self, sentence: str) -> None:
        """Note something that is wrong; the first of all is shown with the logs and the actions before."""
        first = not self.played.wrong
        found = Wrong(self.number, self.action, self.about, sentence)
        self.played.wrong.append(found)
        self.played.wrong_kinds[kind_of(sentence)] += 1
        if self.played.wrong_kinds[kind_of(sentence)] == 1:
            self.tell(
                f"WRONG at {found.number} ({found.action}) of seed {self.played.seed}: {sentence:.1000}"
            )
        if first:
            logs = [line for each in self.programs.all for line in (f"--- {each.log}", *each.tail())]
            self.tell(
                "\n".join(["the actions before:", *self.recent[-KEPT:], *(f"{line:.600}" for line in logs)])
            )

    def begins(self, number: int, action: str) -> None:
        """Note the action that begins now."""
        self.number, self.action, self.about = number, action, ""

    def did(self, about: str) -> None:
        """Note what it was about."""
        self.about = about
        self.played.actions[self.action] += 1
        self.recent = [*self.recent[-KEPT:], f"{self.number} {self.action}: {about:.600}"]


async def play(
    folder: Path, seed: str, numbers: Iterator[int], minutes: float, tell: Callable[[str], None]
) -> Played:
    """Play the actions of these numbers, for at most so many minutes."""
    played, began = Played(seed), time.monotonic()
    async with (
        DevCluster(folder / "cluster", nodes=[VirtualNode(capacity=ROOM)]) as cluster,
        Client(cluster.config()) as client,
        installed(cluster.kubeconfig, folder) as programs,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
    ):
        stage, pulse = Stage(played, tell, programs), Pulse()
        neighbour = Neighbour(client, session, programs.di_server.url, pulse, stage.wrong)
        beside = [asyncio.create_task(pulse.run())]
        await neighbour.move_in()
        tell(f"all runs after {time.monotonic() - began:.0f} s: {folder}")
        played.before, began = await used(programs), time.monotonic()
        watched = Watched(
            programs, lambda: (time.monotonic() - began) / 60, kinds=played.kinds, lines=played.lines
        )
        tenant = Tenant(client, session, programs, pulse, stage.wrong, played.answers)
        working = asyncio.create_task(neighbour.run())
        beside += [asyncio.create_task(_watch(watched, tenant, stage)), working]
        try:
            for number in numbers:
                if time.monotonic() - began > minutes * 60:
                    break
                await _act(tenant, stage, number)
                for task in beside:
                    if task.done():
                        task.result()
            stage.begins(-1, "the end")
            await _emptied(client, pulse, stage)
            neighbour.leaves = True
            await working
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
        await neighbour.look()
        await _check(watched, stage)
        played.after = await used(programs)
        for sentence in grown(played.before, played.after, {each.name: each.starts for each in programs.all}):
            stage.wrong(sentence)
        played.scaled, played.slowest = neighbour.scaled, tenant.slowest
        played.steps, played.calls = neighbour.jobs["trains"].step, neighbour.calls
        played.seconds = time.monotonic() - began
    return played


async def _act(tenant: Tenant, stage: Stage, number: int) -> None:
    chance = Random(f"{stage.played.seed}/{number}")
    name, _, act = drawn(chance)
    stage.begins(number, name)
    try:
        stage.did(await act(tenant, chance))
    except KubeError as error:
        stage.wrong(f"the API server does not answer: {error!s:.300}")
    await asyncio.sleep(chance.uniform(0, PAUSE))  # users come when they like


def kind_of(sentence: str) -> str:
    """Return the beginning of a sentence, the same for sentences about the same thing."""
    return re.sub(r"\d+", "N", sentence)[:70]


async def _watch(watched: Watched, tenant: Tenant, stage: Stage) -> None:
    for second in itertools.count():
        await _check(watched, stage)
        if second % 10 == 0:
            client = tenant.client
            for sentence in (*await taken_over(client), *await stolen(client), *await believed(tenant)):
                stage.wrong(sentence)
        if second % 60 == 59:
            stage.tell(f"{stage.number} actions, {len(stage.played.wrong)} WRONG")
        await asyncio.sleep(1)  # programs tell nobody when they end


async def _check(watched: Watched, stage: Stage) -> None:
    for check in CHECKS:
        for sentence in check(watched):
            stage.wrong(sentence)
    for each in watched.programs.all:
        await restarted(each)


async def _emptied(client: Client, pulse: Pulse, stage: Stage) -> None:
    """Delete the tenant's jobs; what the operator made for them must go."""
    for kind in (*JOBS, *OWNED):
        for found in await client.list(kind.untyped(), HOME):
            about = found["metadata"]
            if about["name"] != "default" and (kind in JOBS or not about.get("ownerReferences")):
                with suppress(KubeError):
                    await client.delete(kind, about["name"], HOME)

    async def empty() -> bool:
        return not [kind for kind in (ELASTICJOB, *OWNED[:3]) if await client.list(kind.untyped(), HOME)]

    if not await pulse.until(empty, EMPTY_WITHIN):
        left = [
            f"{kind.name} {found['metadata']['name']}"
            for kind in (ELASTICJOB, *OWNED[:3])
            for found in await client.list(kind.untyped(), HOME)
        ]
        stage.wrong(f"some of the tenant's objects stay: {left!s:.1000}")
