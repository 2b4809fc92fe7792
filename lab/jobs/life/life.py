"""One life of a training: a master in this process, agents forked from the warm process, what they wrote."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from elasticjob.api.sizes.role import Range
from elasticjob.master.durable.store import Nowhere
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Spec
from elasticjob.trainer.checkpoint import memory
from lab.jobs.life.trainings import Arguments, Training
from lab.jobs.training.agents import TOKEN, Agent, Agents, kill, lives, outlived
from lab.jobs.training.warm import Warm
from lab.paths import LOOPS
from lab.truths.records import Line

LOOK: Final = 0.02
"""Seconds between two looks at what workers wrote."""
STILL: Final = 100.0
"""Seconds without a new line after which a life is said to stand still."""
REPLACED: Final = 3
"""How many times a pod that ended is made again in one life, as `restartCount` says."""
GONE: Final = 15.0
"""Seconds that processes have to end after their agent."""
PACE: Final = ("--pace", 0.04, "--memory-every", 5, "--save-every", 10)
SHARED: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Ended:
    """How a life ended: exit codes by node, the job's verdict, the sentences, what was left."""

    codes: dict[str, int]
    verdict: str
    said: tuple[str, ...]
    log: str
    left: tuple[str, ...]
    still: bool
    stopped: bool

    @property
    def succeeded(self) -> bool:
        """Whether everything says so."""
        return self.verdict == "Succeeded" and not any(self.codes.values()) and not self.still


@dataclass
class Life(Agents):
    """A running life, for those who trouble it."""

    number: int = field(kw_only=True)
    training: Training = field(kw_only=True)
    arguments: Arguments = field(kw_only=True)
    place: str = field(kw_only=True)
    lines: list[Line] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    made: int = 0
    stopped: bool = False
    leaving: set[str] = field(default_factory=set)
    """Nodes that were told to leave: they are made again, and cost no restart."""
    _files: dict[Path, int] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The newest step that is done in this life."""
        if self.training.shards:
            return sum("record" in line for line in self.lines) // self.arguments.batch
        return max((line["done"] for line in self.lines if "done" in line), default=0)

    @property
    def nodes(self) -> dict[str, Agent]:
        """The newest agent of each node."""
        return {agent.node: agent for agent in self.agents}

    async def start(self, node: str) -> None:
        """Start a pod."""
        procs = ("--nproc-per-node", self.training.procs, *self.training.flags)
        script = (LOOPS / self.training.file, self.folder, "--kind", self.training.name)
        place = ("--place", self.place, "--life", self.number, "--micro", self.training.micro)
        more = {
            "LIFE": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            memory.FOLDER: str(self.folder / "memory"),
        }
        await self.begin(node, (*procs, *script, *place, *PACE, *self.arguments.flags()), more)

    async def hear(self, agent: Agent, text: str) -> None:
        """Log a line."""
        self.log.append(f"{agent.node}: {text}")

    def look(self) -> None:
        """Read what is new of what workers wrote, and remember processes."""
        for file in (self.folder / "lines").glob(f"{self.number}-*.jsonl"):
            with file.open("rb") as opened:
                opened.seek(self._files.get(file, 0))
                whole = opened.read().rpartition(b"\n")[0]
            if whole:
                self._files[file] = self._files.get(file, 0) + len(whole) + 1
                self.lines += map(json.loads, whole.splitlines())

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something; never returns if it does not come in this life."""
        while not true():  # noqa: ASYNC110  # of other processes
            await asyncio.sleep(LOOK)

    async def reaches(self, step: int) -> None:
        """Wait until a step is done."""
        await self.until(lambda: self.step >= step)

    async def marked(self, name: str) -> None:
        """Wait until a worker or agent makes a file from now on."""
        (self.folder / name).unlink(missing_ok=True)
        await self.until((self.folder / name).exists)

    def stop(self, number: signal.Signals) -> None:
        """Stop the job: SIGTERM to all agents, or SIGKILL to everything at once."""
        self.stopped = True
        for agent in self.nodes.values():
            if number == signal.SIGKILL:
                kill(agent.tree())
            else:
                agent.kill(number)

    def leave(self, node: str) -> None:
        """Tell a node to leave, as a drain does; another pod follows."""
        self.leaving.add(node)
        self.nodes[node].kill(signal.SIGTERM)

    async def play(self) -> Ended:
        """Return how it ended: all agents are gone, or nothing happens any more."""
        many, since, looked = -1, time.monotonic(), 0.0
        while await self._replaced() or any(agent.lives for agent in self.agents):
            await asyncio.sleep(LOOK)
            self.look()
            now = time.monotonic()
            if now - looked > 0.5:
                looked = now
                for agent in self.agents:
                    agent.tree()
            if many != len(self.lines):
                many, since = len(self.lines), now
            if now - since > STILL:
                break
        if still := any(agent.lives for agent in self.agents):
            self.log.append(f"-- it stands still; the master has {self.master.job.nodes}")
            kill(each for agent in self.agents for each in agent.tree())
        await asyncio.gather(*self.readers)
        self.look()
        verdict = self.master.job.verdict
        said = [verdict.message] if verdict else []
        said += [agent.termination.read_text() for agent in self.agents if agent.termination.exists()]
        return Ended(
            codes={
                node: agent.process.returncode or 0
                for node, agent in self.nodes.items()
                if node not in self.leaving  # told to, and the job was over before it was made again
            },
            verdict=str(verdict.end) if verdict else "",
            said=tuple(said),
            log="\n".join(self.log),
            left=await self._left(),
            still=still,
            stopped=self.stopped,
        )

    async def _replaced(self) -> bool:
        """Make ended pods again, as the operator does until the job has a verdict; return whether one was."""
        made = False
        for node, agent in self.nodes.items():
            code, told = agent.process.returncode, node in self.leaving
            if code is None or self.stopped or self.master.job.verdict:
                continue
            if told or (code and self.made < REPLACED):
                self.made += not told
                self.leaving.discard(node)
                self.log.append(f"-- {node} ended with {code} and is made again")
                await self.start(node)
                made = True
        return made

    async def _left(self) -> tuple[str, ...]:
        """Return what outlived the agents: processes, and blocks of memory."""
        family = [each for agent in self.agents for each in agent.seen.values()]
        alive = await outlived(family, GONE)
        left = [f"process {each.pid} {name_of(each)}" for each in alive]
        kill(alive)
        killed = any(agent.process.returncode == -signal.SIGKILL for agent in self.agents)
        left += [] if killed else blocks(self.folder / "memory", SHARED, {each.pid for each in family})
        return tuple(left)


def blocks(memory: Path, shared: Path, pids: set[int]) -> list[str]:
    """Return the blocks of memory that agents left, and those that torch left for these processes."""
    names = [each.name for each in memory.rglob("*") if each.is_file()]
    torchs = (each.name for each in shared.glob("torch_*_*"))
    names += [name for name in torchs if int(name.split("_")[1]) in pids]
    return [f"block {name}" for name in names]


def name_of(process: psutil.Process) -> str:
    """Return its command line."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())[:80]
    return ""


@asynccontextmanager
async def living(
    folder: Path, number: int, training: Training, arguments: Arguments, warm: Warm, place: str
) -> AsyncIterator[Life]:
    """Start a life; afterwards none of its processes is left."""
    for name in ("lines", "slow", "slow-taken", "tmp", "memory"):
        (folder / name).mkdir(exist_ok=True)
    least = arguments.nodes if training.rigid else 1
    spec = Spec(
        job="life", bounds=Range(least=least, most=2), replicas=arguments.nodes, restart_count=REPLACED
    )
    async with Master(Job(spec=spec), TOKEN, Nowhere()) as master:
        life = Life(
            *(master, warm, folder), number=number, training=training, arguments=arguments, place=place
        )
        try:
            for index in range(arguments.nodes):
                await life.start(f"life-worker-{index}")
            yield life
        finally:
            for agent in life.agents:
                kill([*agent.tree(), *filter(lives, agent.seen.values())])
