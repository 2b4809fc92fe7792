"""The scene: a control plane, machines that only pretend, Kueue with its queues, one of the systems."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.clients.plane import AGENT, NAMESPACE, TooLate, machine, pretended
from benchmarks.shared.pods import Pods, watched
from benchmarks.shared.systems import GPU, Asked, System
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError
from lab.clusters.plane import queues
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.controlplane import KWOK_STAGES, ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.processes import say

MACHINES: Final = 12
HAS: Final = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "8"}
"""The amounts of a machine."""
ONE, TEAM_A, TEAM_B = "one", "team-a", "team-b"
"""Queues: one of 40 GPUs by itself; two of two GPUs each that lend to each other."""
Quotas = Mapping[str, tuple[str, str]]
"""The GPUs of each queue, and its cohort."""
QUOTAS: Final[Quotas] = {ONE: ("40", ""), TEAM_A: ("2", "lab"), TEAM_B: ("2", "lab")}
STAGES: Final = Path(__file__).with_name("stages.yaml")
PLENTY: Final = {"cpu": "1k", "memory": "10Ti"}
"""Quota is short of GPUs alone: our master, which has none, always finds room."""
PATIENCE: Final = 120.0


class Refused(Exception):
    """The system refused or timed out; the message is its own, or names what was awaited."""


@dataclass
class Taken:
    """The figures of one run of a scenario."""

    seconds: dict[str, float] = field(default_factory=dict)
    pods_made: int = 0
    writes: Mapping[str, int] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    refused: str = ""
    """The error with which the system refused a request; the run then replaced the job."""

    def figures(self) -> dict[str, float]:
        """Return all of them by name."""
        writes = {"writes to the API server": sum(self.writes.values())} if self.writes else {}
        return {**self.seconds, **self.counts, "pods made": self.pods_made, **writes}


@dataclass
class Scene:
    """What a scenario plays on."""

    system: System
    plane: ControlPlane
    client: Client
    pods: Pods

    @asynccontextmanager
    async def job(self, asked: Asked, runs: int | None = None) -> AsyncIterator[None]:
        """A job, all of whose pods run (or `runs` of them, or with 0 whatever there is); gone afterwards."""
        await self.create(asked)
        try:
            wanted = asked.workers if runs is None else runs
            if wanted:
                await self.runs(asked.name, wanted)
            yield
        finally:
            await self.end(asked.name)

    async def create(self, asked: Asked) -> None:
        """As a user does. Raises ApiError where the system's webhooks refuse it."""
        await self.client.create(self.system.kind, self.system.manifest(asked), NAMESPACE)

    async def end(self, job: str) -> None:
        """Delete a job and wait until nothing of it is left."""
        await self.client.delete(self.system.kind, job, NAMESPACE)
        await self.pods.until(lambda: not self.pods.named(job), f"no pod of {job} is left", PATIENCE)
        until = time.monotonic() + PATIENCE
        while await self.client.find(self.system.kind, job, NAMESPACE):
            if time.monotonic() > until:
                raise TooLate(f"{job} was deleted and is still there")
            await asyncio.sleep(0.1)

    async def runs(
        self, job: str, workers: int, without: Iterable[str] = (), patience: float = PATIENCE
    ) -> float:
        """When so many of a job's workers ran, none of them `without`. Raises TooLate."""
        gone = {*without}

        def holds() -> bool:
            found = self.pods.running(job)
            return len(found) == workers and not found & gone

        return await self.pods.until(holds, f"{workers} workers of {job} run", patience)

    async def resize(self, job: str, workers: int) -> None:
        """As a user does. Raises Refused with what the system answers."""
        try:
            patch = self.system.sized(workers)
            await self.client.merge_patch(self.system.kind, job, patch, NAMESPACE)
        except ApiError as error:
            raise Refused(str(error)) from error

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[Taken]:
        """Count the pods that are made and the writes to the API server within the block."""
        taken, before, logged = Taken(), len(self.pods.made), self.plane.audit_end()
        self.pods.most = 0
        try:
            yield taken
        finally:
            taken.pods_made = len(self.pods.made) - before
            taken.writes = dict(writes_in(await asyncio.to_thread(self.plane.audit, logged)))


def writes_in(audited: Iterable[Audited]) -> Counter[str]:
    """The writes by program; without the benchmark's own, and without the leases of machines."""
    return Counter(
        request.agent.partition("/")[0]
        for request in audited
        if not request.agent.startswith((AGENT, "elasticjob-kube")) and request.resource != "leases"
    )


@asynccontextmanager
async def scene(system: System, folder: Path) -> AsyncIterator[Scene]:
    """Start everything for one system."""
    say(f"{system.name}: starting a control plane, Kueue and its controllers")
    flags = [f"--config={KWOK_STAGES}", f"--config={STAGES}"]
    machines = (machine(f"machine-{number:02}", HAS) for number in range(MACHINES))
    async with (
        pretended(folder / "plane", machines, flags) as (plane, _, client),
        governed(system, plane, client, folder, QUOTAS) as pods,
    ):
        yield Scene(system, plane, client, pods)


@asynccontextmanager
async def governed(
    system: System, plane: ControlPlane, client: Client, folder: Path, quotas: Quotas
) -> AsyncIterator[Pods]:
    """Kueue with these queues, and the system's controllers, for as long as the block lasts."""
    kueue = Kueue(plane, folder / "kueue", integrations=system.frameworks)
    await asyncio.to_thread(kueue.install)  # its kinds first: others look for them as they start
    async with system.beside(plane, folder):
        try:
            for step in (kueue.start, kueue.register):
                await asyncio.to_thread(step)
            await _queues(client, quotas)
            async with watched(client, system.trains) as pods:
                yield pods
        finally:
            await asyncio.to_thread(kueue.stop)
            await asyncio.to_thread(kueue.unregister)  # the plane may go on, with another Kueue


async def _queues(client: Client, quotas: Quotas) -> None:
    await client.apply(queues.RESOURCE_FLAVOR, queues.flavor(), manager=AGENT)
    for name, (gpus, cohort) in quotas.items():
        quota = queues.cluster_queue(name, {GPU: gpus, **PLENTY}, cohort=cohort)
        await client.apply(queues.CLUSTER_QUEUE, quota, manager=AGENT)
        await client.apply(queues.LOCAL_QUEUE, queues.local_queue(name, NAMESPACE, name), manager=AGENT)
