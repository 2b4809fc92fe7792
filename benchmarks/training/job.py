"""A job of one system on this machine: its node processes, and the steps that their workers tell."""

from __future__ import annotations

import json
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.training.systems import Command, Shape, Site, System, last_error
from elasticjob.cli.laptop.ports import free_port
from lab.paths import ROOT, SCRIPTS
from lab.processes import Dialogue, ProgramFailed, listens

WARM: Final = 20  # steps of all workers before each blow
OURS: Final = ("ELASTICJOB_", "PET_", "DLROVER_", "TORCHFT_", "RAY_", "BENCH_")
MARK: Final = "BENCH_NODE"
"""The variable by which the processes of a node are known, those that have left its tree with the rest."""
SERVICE: Final = -1

Step = dict[str, Any]


class NotInTime(Exception):
    """A step that was waited for did not come."""


@dataclass
class Job:
    """The nodes of a job, by rank; what they need beside them has the rank -1."""

    system: System
    site: Site
    folder: Path
    patience: float
    environ: Mapping[str, str]
    arguments: list[str]
    steps: queue.SimpleQueue[Step] = field(default_factory=queue.SimpleQueue)
    processes: dict[int, Dialogue] = field(default_factory=dict)
    frozen: list[psutil.Process] = field(default_factory=list)

    def start(self, rank: int) -> None:
        """Start a node."""
        script = [str(SCRIPTS / self.system.script), *self.arguments]
        self._run(rank, self.system.node(self.site, rank) + script)

    def serve(self) -> None:
        """Start what the nodes need, and wait until it listens."""
        if self.system.service:
            self._run(SERVICE, self.system.service(self.site))
            self.listening()

    def listening(self) -> None:
        """Return when the job's port accepts connections."""
        deadline = time.monotonic() + self.patience
        while not listens(self.site.port):
            self._check()
            if time.monotonic() > deadline:
                raise ProgramFailed(f"nothing listens for the nodes after {self.patience:.0f} s")
            time.sleep(0.05)

    def until(self, wanted: Callable[[Step], bool]) -> Step:
        """Return the next step for which `wanted` holds.

        Raises NotInTime if none comes, ProgramFailed if node 0 ends.
        """
        deadline = time.monotonic() + self.patience
        while (left := deadline - time.monotonic()) > 0:
            try:
                step = self.steps.get(timeout=min(left, 0.5))
            except queue.Empty:
                self._check()
                continue
            if wanted(step):
                return step
        raise NotInTime

    def settled(self) -> dict[int, Step]:
        """Return the last step of each process once all workers have taken a few together."""
        count, last = 0, {}
        while count < WARM:
            step = self.until(bool)
            count = count + 1 if step["world"] == 2 else 0
            last[step["pid"]] = step
        return {pid: step for pid, step in last.items() if step["world"] == 2}

    def kill(self, rank: int) -> None:
        """Kill a node: its agent and its workers, at once."""
        whole = self._node(rank)
        for blow in (psutil.Process.suspend, psutil.Process.kill):
            each(whole, blow)
        self.processes.pop(rank).stop(0.0)

    def freeze(self, rank: int) -> None:
        """Stop a node: its agent and its workers are there, and do nothing."""
        self.frozen += self._node(rank)
        each(self.frozen, psutil.Process.suspend)

    def close(self) -> None:
        """Kill everything."""
        each(self.frozen, psutil.Process.kill)
        for rank in list(self.processes):
            self.kill(rank)

    def _run(self, rank: int, command: Command) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        mine = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", MARK: self._mark(rank)}
        environ = {**kept, **mine, **self.environ, **command.environ}
        process = self.processes[rank] = Dialogue(str(rank), command.words, self.folder, environ)
        process.spawn()
        threading.Thread(target=self._read, args=(process, rank), daemon=True).start()

    def _read(self, process: Dialogue, rank: int) -> None:
        with suppress(ProgramFailed, ValueError):  # it has ended
            while True:
                line = process.line()
                start = line.find("{")
                if start >= 0 and '"pid"' in line:
                    with suppress(json.JSONDecodeError):  # a line that a kill cut short
                        self.steps.put({**json.loads(line[start:]), "node": rank})

    def _check(self) -> None:
        for rank in (SERVICE, 0):
            process = self.processes.get(rank)
            if process and process.code is not None:
                raise ProgramFailed(last_error(process.log.read_text(errors="replace")))

    def _node(self, rank: int) -> list[psutil.Process]:
        first = self.processes[rank].identity
        return processes_of(first.pid if first else 0, self._mark(rank))

    def _mark(self, rank: int) -> str:
        return f"{self.site.name}/{rank}"


def processes_of(pid: int, mark: str) -> list[psutil.Process]:
    """Return a process and all that it has started: those below it first, then daemons that bear its mark."""
    found = dict[int, psutil.Process]()
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        found |= {each.pid: each for each in (first, *first.children(recursive=True))}
    for other in psutil.process_iter():
        with suppress(psutil.Error):
            if other.pid not in found and other.environ().get(MARK) == mark:
                found[other.pid] = other
    return list(found.values())


def each(processes: list[psutil.Process], blow: Callable[[psutil.Process], None]) -> None:
    """Hit all that are still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            blow(process)


@contextmanager
def running(
    system: System,
    wanted: Shape,
    patience: float,
    nodes: int | None = None,
    work: Mapping[str, str] | None = None,
) -> Iterator[Job]:
    """Run a job with its first `nodes` nodes, or all; nothing is left of it afterwards.

    `work` is what its script finds in the environment; without it, a script that can saves a checkpoint.
    """
    with tempfile.TemporaryDirectory(prefix="bench-training-") as folder:
        shape = system.shape(wanted)
        site = Site(shape, free_port(), Path(folder).name)
        saved = [] if work else [str(Path(folder, "checkpoint.pt"))]
        job = Job(system, site, Path(folder), patience, work or {}, saved)
        try:
            job.serve()
            for rank in range(shape.nodes if nodes is None else nodes):
                job.start(rank)
                if shape.nodes > 1:  # node 0 may bring the master, or the rendezvous: the blows do not hit it
                    job.listening()
            yield job
        finally:
            job.close()
            shutil.rmtree(
                Path(tempfile.gettempdir(), "ckpt_sock", site.name), ignore_errors=True
            )  # DLRover's
