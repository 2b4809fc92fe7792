"""The processes of one training that are hit at random and started again: a master, and what it leads."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from elasticjob.api.rpc import environment as names
from lab.paths import ROOT
from lab.processes import Process

MASTER: Final = "master"


@dataclass
class Processes(ABC):
    """Processes by name, each with a log in the folder; the master's address is a port of loopback."""

    folder: Path
    port: int
    running: dict[str, Process] = field(default_factory=dict)
    blows: Counter[str] = field(default_factory=Counter)
    coming_back: set[asyncio.Task[None]] = field(default_factory=set)

    @abstractmethod
    def command(self, name: str) -> Sequence[str]:
        """Return what Python runs as this process."""

    def variables(self, name: str) -> Mapping[str, str]:
        """Return variables beside those that each process has."""
        return {}

    def start(self, name: str) -> None:
        """Start a process."""
        command, environ = [sys.executable, *self.command(name)], self._environment(name)
        self.running[name] = Process(name, command, self.folder, environ)
        self.running[name].spawn()

    def come_back(self, name: str, after: float) -> None:
        """Start a process again, some seconds after it has ended."""
        self.later(self._again(name, self.running.pop(name), after))

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Do what is awaited before the end."""
        task = asyncio.create_task(work)
        self.coming_back.add(task)
        task.add_done_callback(self.coming_back.discard)

    def end(self) -> None:
        """Kill all that run, with what they have started."""
        for process in self.running.values():
            process.kill_all()

    async def _again(self, name: str, process: Process, after: float) -> None:
        await process.wait()
        await asyncio.sleep(after)
        self.start(name)

    def master(self, nodes: int) -> list[str]:
        """Return the command of a master of up to so many nodes."""
        files = ["--state", str(self.folder / "state.json"), "--token-file", str(self.folder / "token")]
        job = ["--job", "chaos", "--nnodes", f"1:{nodes}", "--port", str(self.port)]
        return ["-m", "elasticjob.cli", MASTER, *job, *files]

    def _environment(self, name: str) -> dict[str, str]:
        if name == MASTER:
            mine = environment({names.TERMINATION_LOG: str(self.folder / "verdict")})
        else:
            mine = of_node(name, f"127.0.0.1:{self.port}", self.folder)
        return {**mine, **self.variables(name)}


def of_node(name: str, master: str, folder: Path) -> dict[str, str]:
    """Return the environment of a node of a job whose token is in the folder."""
    place = {names.NODE: name, names.POD_NAME: name, names.INDEX: name.rpartition("-")[2]}
    return environment({**place, names.MASTER: master, names.TOKEN_FILE: str(folder / "token")})


def of_agent(name: str, master: str, folder: Path, termination: Path) -> dict[str, str]:
    """Return the environment of the agent of a node, as its pod has it."""
    role = {names.JOB: name.partition("-")[0], names.ROLE: "worker", "PYTHONUNBUFFERED": "1"}
    return {**of_node(name, master, folder), **role, names.TERMINATION_LOG: str(termination)}


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of what a user starts: ours without settings of elasticjob, and `more`."""
    clean = {name: each for name, each in os.environ.items() if not name.startswith(("ELASTICJOB_", "PET_"))}
    return {**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}
