"""More nodes of a standalone run: processes on this machine beside this one, as many as pay.

This process holds the master and is node 0. The optimizer of a job without a Brain decides about the others,
between the two numbers of --nnodes and within what the machine has: a core, or a device, for each worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elasticjob.api.rpc import environment as names
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import JobFacts, Mode
from elasticjob.api.sizes.role import Role
from elasticjob.cli.standalone.hosted import BESIDE, HostedJob
from elasticjob.kube.controller.passes import Passes
from elasticjob.master.cluster.autoscaler import EVERY, Autoscaler
from elasticjob.master.scalers.processes import Command, Processes
from elasticjob.master.scalers.scaler import Scaler
from elasticjob.master.scaling.local import LocalOptimizer
from elasticjob.master.state.job import Job
from elasticjob.master.state.scaling import Target
from elasticjob.sizing.facts import Pace
from elasticjob.trainer.agent.settings import Settings

if TYPE_CHECKING:
    from elasticjob.master.scaling.workers import Member
    from elasticjob.master.serving.server import Master

WORKER: Final = "worker"
DEVICES: Final = "CUDA_VISIBLE_DEVICES"
DRIVER: Final = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Machine:
    """What this machine has for nodes of `workers` workers each."""

    cores: int
    devices: tuple[str, ...] = ()
    workers: int = 1

    def most(self, low: int, high: int) -> int:
        """Return how many nodes there may be: never fewer than were asked for."""
        return max(low, min(high, len(self.devices or range(self.cores)) // self.workers))

    def environment(self, node: int) -> dict[str, str]:
        """Return which devices a node sees; nothing without devices, or with too few."""
        mine = self.devices[node * self.workers : (node + 1) * self.workers]
        return {DEVICES: ",".join(mine)} if len(mine) == self.workers else {}


def machine(workers: int, environment: Mapping[str, str], driver: Path = DRIVER) -> Machine:
    """Return this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (visible := environment.get(DEVICES)) is not None:
        return Machine(cores, tuple(filter(None, visible.split(","))), workers)
    count = len(list(driver.iterdir())) if driver.is_dir() else 0
    return Machine(cores, tuple(map(str, range(count))), workers)


def facts_of(job: HostedJob) -> JobFacts:
    """Return what the optimizer may decide: the number of nodes, if --nnodes is a range."""
    count = job.low if job.low == job.high else None
    role = Role(count=count, least=job.low, most=job.high)
    return JobFacts(name=job.name, mode=Mode.SINGLE_JOB, roles={WORKER: role})


def pace(environment: Mapping[str, str]) -> Pace:
    """Return how often sizes are looked at, by the same variable as for a master in a cluster."""
    return Pace().times(float(environment.get("ELASTICJOB_MASTER__PACE", "1")))


class Beside:
    """A scaler of all nodes of which the first is this process: what it passes on are the others."""

    def __init__(self, others: Scaler) -> None:
        self._others = others

    async def apply(self, key: str, change: Change) -> None:
        """Have one process fewer than there shall be nodes; resources of processes mean nothing."""
        groups = {
            role: Group(None if group.count is None else max(0, group.count - 1))
            for role, group in change.groups.items()
        }
        await self._others.apply(key, replace(change, groups=groups, nodes={}))


@asynccontextmanager
async def beside(settings: Settings, job: HostedJob, master: Master, address: str) -> AsyncIterator[None]:
    """Run the other nodes while the block runs; they end with it, in their own time if it goes well."""
    with tempfile.TemporaryDirectory(prefix="elasticjob-") as made:
        folder = Path(made)
        token = folder / "token"
        token.touch(0o600)
        token.write_text(settings.place.token)
        here = machine(settings.workers, os.environ)

        def command(member: Member) -> Command:
            node = member.rank + 1
            own = {
                BESIDE: str(os.getpid()),
                names.MASTER: address,
                names.TOKEN_FILE: str(token),
                names.JOB: settings.place.job,
                names.ROLE: settings.place.role,
                names.NODE: f"{settings.place.job}-{settings.place.role}-{node}",
                names.INDEX: str(node),
                names.TERMINATION_LOG: str(folder / f"end-{node}"),
            }
            return Command(
                (sys.executable, "-m", "elasticjob.cli", *sys.argv[1:]), own | here.environment(node)
            )

        others = Processes(
            folder,
            master.job.spec.job,
            command,
            master.clock,
            grace=settings.grace + 10,
            metrics=master.metrics,
        )
        scaler = Beside(others)
        await scaler.apply("start", Change({WORKER: Group(job.low)}, reason=f"{job.low} nodes"))
        os.environ.update(here.environment(0))
        tasks = [
            asyncio.create_task(others.run()),
            asyncio.create_task(_observe(master, others, job.high)),
            asyncio.create_task(Autoscaler(master, LocalOptimizer(), scaler).run()),
        ]
        try:
            yield
            await _until_gone(others, master, settings.grace)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await others.close()


async def _observe(master: Master, others: Processes, most: int) -> None:
    """Tell the master how many nodes there should be, and how many more there could, again and again."""
    passes = Passes("observations", master.clock, master.metrics, at_most=10.0)
    while True:
        if passes.is_due(WORKER):
            with passes.over(WORKER):
                await _look(master, others, most)
        await master.clock.sleep(EVERY)


async def _look(master: Master, others: Processes, most: int) -> None:
    count = 1 + sum(member.alive for member in await others.members())
    placed = Target(sizes={WORKER: count}, room={WORKER: most - count}, begun=True)
    master.observe(lambda job, now: _with(job, placed))


def _with(job: Job, placed: Target) -> Job:
    return job if job.scaling.placed == placed else job.but(scaling=job.scaling.but(placed=placed))


async def _until_gone(others: Processes, master: Master, patience: float) -> None:
    """Return when the other nodes have ended by themselves, once the job is over, or after some time."""
    until = master.clock.monotonic() + patience
    while others.pids and master.clock.monotonic() < until:
        await master.clock.sleep(0.1)
