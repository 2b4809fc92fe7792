"""The processes of one training that are hit at random and started again: a master, and what it leads."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
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
            return environment({names.TERMINATION_LOG: str(self.folder / "verdict"), **self.variables(name)})
        return environment_of(name, f"127.0.0.1:{self.port}", self.folder, self.variables(name))


@dataclass
class OverServers(Processes):
    """A master, servers with "ps" in their names, and workers, all with one command."""

    serve: str = "elasticjob.trainer.store.serve"
    worker: Sequence[object] = ()

    def command(self, name: str) -> list[str]:
        """Return the command of the master, a server or a worker."""
        if name == MASTER:
            return self.master(4)
        if "ps" in name:
            return ["-m", self.serve, str(self.folder / "kept")]
        return [*map(str, self.worker)]


def environment_of(node: str, master: str, folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a node, whose name ends with its index; the job's token is in `folder`."""
    mine = {
        names.NODE: node,
        names.INDEX: node.rpartition("-")[2],
        names.MASTER: master,
        names.TOKEN_FILE: str(folder / "token"),
        names.POD_NAME: node,
    }
    return environment({**mine, **more})


def environment_of_agent(
    node: str, master: str, folder: Path, termination: Path, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the agent of a node of the job that the node's name begins with."""
    mine = {names.JOB: node.partition("-")[0], names.ROLE: "worker", "PYTHONUNBUFFERED": "1"}
    return environment_of(node, master, folder, {**mine, names.TERMINATION_LOG: str(termination), **more})


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of what a user starts: ours without settings of elasticjob, and `more`."""
    clean = {name: each for name, each in os.environ.items() if not name.startswith(("ELASTICJOB_", "PET_"))}
    return {**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}
