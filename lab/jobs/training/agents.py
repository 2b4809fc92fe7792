"""A job on this machine: a master in this process, agents forked from the warm process, what they print."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from elasticjob.master.serving.server import Master
from lab.jobs.training.warm import Process, Warm
from lab.programs.training import environment_of_agent

TOKEN: Final = "secret"


@dataclass
class Agent:
    """A pod: its agent, and every process that was ever seen below it."""

    node: str
    process: Process
    termination: Path
    seen: dict[int, psutil.Process] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def lives(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the agent alone, if it lives."""
        if self.lives:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def tree(self) -> list[psutil.Process]:
        """Return the agent and everything below it, and remember them; nothing once it has ended."""
        tree: list[psutil.Process] = []
        with suppress(psutil.Error):
            root = psutil.Process(self.pid)
            tree = [root, *root.children(recursive=True)] if self.lives else []
        self.seen |= {each.pid: each for each in tree}
        return tree

    def last_words(self) -> dict[str, Any]:
        """Return the termination message."""
        words: dict[str, Any] = json.loads(self.termination.read_text())
        return words


@dataclass
class Agents(ABC):
    """A master, and the agents that it leads, the oldest first; one that is made again is another."""

    master: Master
    warm: Warm
    folder: Path
    agents: list[Agent] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "token").write_text(TOKEN)

    async def begin(self, node: str, command: Iterable[object], more: dict[str, str]) -> Agent:
        """Start the agent of a node, with variables beside those of its pod."""
        life = sum(agent.node == node for agent in self.agents)
        termination = self.folder / f"end-{node}-{life}"
        termination.unlink(missing_ok=True)  # of an earlier life of the job
        environment = environment_of_agent(node, self.master.address, self.folder, termination, more)
        return self.follow(Agent(node, await self.warm.agent([*map(str, command)], environment), termination))

    def follow(self, agent: Agent) -> Agent:
        """Read what an agent prints from now on."""
        self.agents.append(agent)
        self.readers.append(asyncio.create_task(self.read(agent)))
        return agent

    async def read(self, agent: Agent) -> None:
        """Hear each line of an agent and its workers, until it has ended."""
        async for raw in agent.process.stdout:
            await self.hear(agent, raw.decode(errors="replace").rstrip())
        await agent.process.wait()

    @abstractmethod
    async def hear(self, agent: Agent, text: str) -> None:
        """Hear a line."""


async def outlived(processes: Iterable[psutil.Process], within: float) -> list[psutil.Process]:
    """Return the processes that still run after so many seconds at most."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, [*processes], timeout=within)
    return [each for each in alive if lives(each)]


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL processes."""
    for each in processes:
        with suppress(psutil.Error):
            each.kill()


def lives(process: psutil.Process) -> bool:
    """Whether it runs, and no other has its number now; one that has ended may wait for a careless PID 1."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
