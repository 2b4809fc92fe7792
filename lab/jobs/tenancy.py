"""A hostile tenant beside a quiet one, against operator, Brain and di-server on a devcluster.

Something is wrong if a program of ours ends, an answer is 5xx, an admission takes over 10 s, an error names
no object or comes again and again, the neighbour's job changes or is not scaled within 30 s, or memory or
series grow. Actions are drawn by their number: a story begins with the action of its own number.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
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
from lab.jobs.neighbour import Neighbour
from lab.jobs.pulse import Pulse
from lab.processes import ProgramFailed
from lab.programs.control_plane import Installed, installed
from lab.story import Draws, Job, Length, Scene, Story, Weights
from lab.troubles.tenant import ACTIONS, HOME, Act, Tenant, believed, stolen, taken_over
from lab.troubles.tenant import JOBS as KINDS
from lab.truths.programs import Use, Watched, have_ended, have_logged, used
from lab.truths.status import OWNED

PAUSE: Final = 0.25
"""Seconds between two actions, at most: our programs are to see many states, not only the last one."""
EMPTY_WITHIN: Final = 60.0
ROOM: Final = {"cpu": "1000", "memory": "1000Gi", "pods": "250", "ephemeral-storage": "1000Gi"}
"""Nobody's pods stand in another's way."""


@dataclass(frozen=True)
class Town:
    """Our programs on a cluster where nobody's pods stand in another's way."""

    client: Client
    programs: Installed
    session: aiohttp.ClientSession


@dataclass
class Tenancy(Scene):
    """The run as it goes; `wrong` has the first sentence of each kind, with the action when it was seen."""

    town: Town
    pulse: Pulse = field(default_factory=Pulse)
    wrong: dict[str, str] = field(default_factory=dict)
    chance: Random = field(default_factory=Random)
    number: int = 0
    action: str = ""
    starts: Mapping[str, int] = field(default_factory=dict)
    before: Mapping[str, Use] = field(default_factory=dict)
    after: Mapping[str, Use] = field(default_factory=dict)
    beside: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        town, began = self.town, time.monotonic()
        self.neighbour = Neighbour(
            town.client, town.session, town.programs.di_server.url, self.pulse, self.note
        )
        self.tenant = Tenant(town.client, town.session, town.programs, self.pulse, self.note, Counter())
        self.watched = Watched(town.programs, lambda: (time.monotonic() - began) / 60)

    def note(self, sentence: str) -> None:
        """Note something that is wrong."""
        kind = re.sub(r"\d+", "N", sentence)[:70]
        self.wrong.setdefault(kind, f"at {self.number} ({self.action}): {sentence:.1000}")

    async def suffer(self, name: str, act: Act) -> str:
        """Let the tenant act."""
        try:
            about = await act(self.tenant, self.chance)
        except KubeError as error:
            self.note(f"the API server does not answer: {error!s:.300}")
            about = "no answer"
        await asyncio.sleep(self.chance.uniform(0, PAUSE))  # users come when they like
        return f"{self.number} {name}: {about:.120}"

    async def draws(self, troubles: Weights) -> Draws:
        """Yield actions by their numbers, for some minutes or as many as are wanted."""
        await self.neighbour.move_in()
        self.before = await used(self.town.programs)
        working = asyncio.create_task(self.neighbour.run())
        self.beside += [asyncio.create_task(self._watch()), working]
        self.began = time.monotonic()
        for done in itertools.takewhile(self.goes_on, itertools.count()):
            self.number = self.story.number + done
            self.chance = Random(f"{self.story.seed}/{self.number}")
            (trouble,) = self.chance.choices([*troubles], weights=[*troubles.values()])
            self.action = trouble.name
            yield trouble
            for task in self.beside:
                if task.done():
                    task.result()
        self.action = "the end"
        await self._empty()
        self.neighbour.leaves = True
        await working

    async def finish(self) -> None:
        """Look for the last time, and note what our programs hold."""
        await self.neighbour.look()
        await self._check()
        programs, neighbour = self.town.programs, self.neighbour
        self.after, self.starts = await used(programs), {each.name: each.starts for each in programs.all}
        answers = (f"{answer}: {count}" for answer, count in sorted(self.tenant.answers.items()))
        kinds = (f"{count} {kind}" for kind, count in self.watched.kinds.most_common(30))
        slowest = max(neighbour.scaled, default=0)
        self.figures |= {
            "answers": ", ".join(answers),
            "slowest write": f"{self.tenant.slowest:.1f} s",
            "changes of size": f"{len(neighbour.scaled)}, the slowest in {slowest:.1f} s",
            "step, calls of di-server": f"{neighbour.jobs['trains'].step}, {neighbour.calls}",
            "errors in logs, by kind": ", ".join(kinds),
        }
        for name, had in self.before.items():
            if has := self.after.get(name):
                mib, series = (had.memory >> 20, has.memory >> 20), (had.series, has.series)
                self.figures[name] = f"{mib[0]} → {mib[1]} MiB, {series[0]} → {series[1]} series"

    async def _watch(self) -> None:
        for second in itertools.count():
            await self._check()
            if second % 10 == 0:
                client = self.tenant.client
                for each in (*await taken_over(client), *await stolen(client), *await believed(self.tenant)):
                    self.note(each)
            await asyncio.sleep(1)  # programs tell nobody when they end

    async def _check(self) -> None:
        """Look at our programs; one that has ended is started again, so that the rest is tried too."""
        for sentence in (*have_ended(self.watched), *have_logged(self.watched)):
            self.note(sentence)
        for each in self.town.programs.all:
            if each.code is not None:
                with suppress(ProgramFailed):  # if it ends again, that is seen next
                    await each.up()
        self.story.look(self)

    async def _empty(self) -> None:
        """Delete the tenant's jobs; what the operator made for them must go."""
        client = self.town.client
        for kind in (*KINDS, *OWNED):
            for each in await client.list(kind.untyped(), HOME):
                about = each["metadata"]
                if about["name"] != "default" and (kind in KINDS or not about.get("ownerReferences")):
                    with suppress(KubeError):
                        await client.delete(kind, about["name"], HOME)
        left: list[str] = []

        async def empty() -> bool:
            left[:] = [
                f"{kind.name} {each['metadata']['name']}"
                for kind in (ELASTICJOB, *OWNED[:3])
                for each in await client.list(kind.untyped(), HOME)
            ]
            return not left

        if not await self.pulse.until(empty, EMPTY_WITHIN):
            self.note(f"some of the tenant's objects stay: {left!s:.1000}")


@asynccontextmanager
async def town(folder: Path, job: Job) -> AsyncIterator[Town]:
    """Start a devcluster and our programs."""
    async with (
        DevCluster(folder / "cluster", nodes=[VirtualNode(capacity=ROOM)]) as cluster,
        Client(cluster.config()) as client,
        installed(cluster.kubeconfig, folder) as programs,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
    ):
        yield Town(client, programs, session)


@asynccontextmanager
async def let(here: Town, story: Story) -> AsyncIterator[Tenancy]:
    """Begin a run."""
    scene = Tenancy(here, story=story, evidence=tuple(each.log for each in here.programs.all))
    scene.beside.append(asyncio.create_task(scene.pulse.run()))
    try:
        yield scene
    finally:
        for task in scene.beside:
            task.cancel()
        await asyncio.gather(*scene.beside, return_exceptions=True)


JOBS: Final = (
    Job(
        "neighbour",
        "a job that trains beside a hostile tenant, on a cluster with operator, Brain and di-server",
        ("town",),
        let,
        Tenancy,
        {name: weight for name, (weight, _) in ACTIONS.items()},
        ("undisturbed", "bounded"),
        Length(minutes=2.0),
    ),
)
