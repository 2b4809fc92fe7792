"""The scene: a node with real containers, Kueue with its queues, one of the systems, jobs that train."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.clients.load import plain
from benchmarks.clients.plane import AGENT, NAMESPACE, TooLate
from benchmarks.shared.scene import ONE, TEAM_A, TEAM_B, Quotas, Scene, Taken, governed
from benchmarks.shared.systems import GPU, Asked, System
from benchmarks.shared.training.jobs import PROGRAMS, RECORD, SAVE_EVERY, SCRIPTS
from elasticjob import __version__
from elasticjob.cli.story.steps import Step, lost
from elasticjob.cli.story.watched import LOOK_EVERY, Record
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE
from lab.clusters.images import images
from lab.clusters.images.oci import Store
from lab.clusters.node.node import Node
from lab.clusters.node.place import Place, default_folder
from lab.paths import ROOT
from lab.processes import say

FOLDER: Final = default_folder().with_name("bench-node")
"""A node of the benchmark's own: nothing of it is kept, and objects of `make e2e` are not touched."""
GPUS: Final = "8"
"""Pretended ones: quota is short of them, and the node is not."""
QUOTAS: Final[Quotas] = {ONE: ("3", ""), TEAM_A: ("2", "lab"), TEAM_B: ("1", "lab")}
WELL: Final = 100
"""Steps in a row that a job must have made to count as training."""
PATIENCE: Final = 180.0
CONFIG_MAP: Final[Kind[Manifest]] = Kind("", "v1", "ConfigMap", "configmaps", dict)
KILL: Final = """
import os, signal
from elasticjob.cli.story.processes import running, workers_of
os.kill(workers_of(running(lambda process: True))[0].pid, signal.SIGKILL)
"""
"""Run in a container, where nothing but the container's own processes can be seen."""


@dataclass
class Training:
    """A job that trains, and the steps that it has recorded so far."""

    on: OnNode
    asked: Asked
    record: Record
    steps: list[Step] = field(default_factory=list)

    async def trains(self, workers: int | None, after: int = 0, well: int = WELL) -> None:
        """Wait until so many workers, None for any, make steps in a round after that. Raises TooLate."""
        until = time.monotonic() + PATIENCE
        while not trains_well(self.steps[-well:], workers, after, well):
            if time.monotonic() > until:
                wanted = "any" if workers is None else workers
                raise TooLate(f"not within {PATIENCE:.0f} s: {wanted} workers of {self.asked.name} train")
            await asyncio.sleep(LOOK_EVERY)
            self.steps += self.record.new()

    @property
    def round(self) -> int:
        """The newest."""
        self.steps += self.record.new()
        return self.steps[-1].round

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[Taken]:
        """Count what is lost, and the job's pods that are made, within the block."""
        taken, made = Taken(), self._made()
        self.steps += self.record.new()
        first = len(self.steps) - 1
        yield taken
        self.steps += self.record.new()
        during = self.steps[first:]
        taken.seconds["longest gap between steps, s"] = longest(during)
        taken.counts["steps trained again"] = lost(during)
        taken.pods_made = self._made() - made

    def _made(self) -> int:
        return sum(name.startswith(f"{self.asked.name}-") for name in self.on.pods.made.values())


@dataclass
class OnNode(Scene):
    """A node with one system on it, and the pods of its jobs."""

    node: Node

    @asynccontextmanager
    async def training(self, asked: Asked) -> AsyncIterator[Training]:
        """A job whose workers all train; gone afterwards."""
        folder = self.node.volumes / asked.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        folder.chmod(0o777)  # containers are nobody's
        job = Training(self, asked, Record(folder / RECORD))
        moment = Random(asked.name).randrange(SAVE_EVERY)  # between two saves, the same for every system
        async with self.job(asked, 0):
            await job.trains(asked.workers, well=WELL + moment)
            yield job

    def newest(self, job: str) -> str:
        """The pod of a job with the highest index."""
        return max(self.pods.made[uid] for uid in self.pods.running(job))

    async def kill(self, pod: str) -> None:
        """SIGKILL the process that trains in a pod."""
        kubectl = (str(self.node.kubectl), f"--kubeconfig={self.node.kubeconfig}", "-n", NAMESPACE)
        command = (*kubectl, "exec", pod, "--", "python3", "-c", KILL)
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)


def trains_well(newest: Sequence[Step], workers: int | None, after: int, well: int = WELL) -> bool:
    """Whether these are steps enough of one round after that one, by so many workers, or None for any."""
    of_last = [step for step in newest if step.round == newest[-1].round]
    if len(of_last) < well or of_last[-1].round <= after:
        return False
    return workers in (None, of_last[-1].world)


def longest(steps: Sequence[Step]) -> float:
    """The longest time between two steps; 0 where there are fewer than two."""
    return max((after.at - before.at for before, after in pairwise(steps)), default=0.0)


@contextmanager
def node() -> Iterator[Node]:
    """A node with the image; nothing is left of it afterwards, nor of one that was killed before."""
    found = Node(Place(FOLDER), say=say)
    found.purge()
    found.place.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    try:
        found.up()
        store = Store(images.cache())
        found.load(images.build("trainer", store, __version__), store)
        asyncio.run(_furnish(found))
        yield found
    finally:
        for left in found.purge():
            say(f"left on this machine: {left}")


async def _furnish(found: Node) -> None:
    """A namespace with the scripts, and GPUs that pods can ask for."""
    scripts = {name: (ROOT / path).read_text() for name, path in SCRIPTS.items()}
    async with plain(found.kubeconfig, AGENT) as server:
        await server.namespace(NAMESPACE)
    async with Client(found.config(), user_agent=AGENT) as client:
        await client.create(CONFIG_MAP, {"metadata": {"name": PROGRAMS}, "data": scripts}, NAMESPACE)
        capacity = {"status": {"capacity": {GPU: GPUS}, "allocatable": {GPU: GPUS}}}
        await client.merge_patch(NODE, found.place.node, capacity, subresource="status")


@asynccontextmanager
async def training_scene(on: Node, system: System, folder: Path) -> AsyncIterator[OnNode]:
    """Start Kueue and the controllers of one system."""
    say(f"{system.name}: starting Kueue and its controllers")
    async with (
        Client(on.config(), user_agent=AGENT) as client,
        governed(system, on.plane, client, folder, QUOTAS) as pods,
    ):
        yield OnNode(system, on.plane, client, pods, on)
