"""Kills at random places of a TensorFlow job over servers, and how often each record counts afterwards.

    python -m benchmarks.servers.kills --kills 30 --seed 1

Servers, workers, the first of them (the chief) and the master are killed in steady training, beside a change
of the number of servers and beside a save; two servers at once; a worker or a server is stopped for seconds
and goes on. As root, with nft, a server is also cut off for seconds: packets to its address are dropped, or
its connections reset, while the master still hears from it. A record may count twice if a worker was killed
or stopped in its step, or its server was cut off: at most a batch for each of these workers.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.servers.stage import stage_in
from lab.jobs.job import Job
from lab.jobs.site import Site
from lab.jobs.training.forking import process_of
from lab.jobs.training.over_servers import counts, kept, spec
from lab.truths.steps import Steps
from lab.waiting import until

BATCH: Final = 100
RECORDS_FOR_A_KILL: Final = 20_000
HOOK: Final = "type filter hook input priority 0"


@dataclass
class Scene:
    """A job, its folder, and the dice."""

    site: Site
    job: Job
    folder: Path
    pids: Path
    dice: random.Random
    plans: int = 0
    spoilt: int = 0
    """Steps that may count twice."""

    def some(self, role: str, most: int = 1) -> list[str]:
        """Return running pods of a role, at random."""
        pods = sorted(name for name in self.job.running() if name.startswith(role))
        return self.dice.sample(pods, min(most, len(pods)))

    def signal(self, pod: str, number: signal.Signals = signal.SIGKILL) -> None:
        try:
            os.kill(process_of(self.pids, f"{self.job.name}-{pod}"), number)
        except (ProcessLookupError, FileNotFoundError):
            print(f"{pod} had ended already", flush=True)

    def chief(self) -> str:
        """Return the first worker, as it said itself; any other, if that has gone."""
        said = (self.folder / "chief").read_text().removeprefix(f"{self.job.name}-")
        return said if said in self.job.running() else self.some("worker")[0]

    async def soon(self) -> None:
        await asyncio.sleep(self.dice.random() * 0.6)

    async def change(self) -> asyncio.Task[None]:
        """Begin a change of the number of servers."""
        self.plans += 1
        replicas = {"ps": {"replicas": self.dice.choice((2, 3, 4))}}
        return asyncio.create_task(self.site.plan(f"plan-{self.plans}", replicaResourceSpecs=replicas))


async def server(scene: Scene) -> None:
    for pod in scene.some("ps"):
        scene.signal(pod)


async def two_servers(scene: Scene) -> None:
    for pod in scene.some("ps", 2):
        scene.signal(pod)


async def worker(scene: Scene) -> None:
    scene.spoilt += 1
    for pod in scene.some("worker"):
        scene.signal(pod)


async def chief(scene: Scene) -> None:
    scene.spoilt += 1
    scene.signal(scene.chief())


async def master(scene: Scene) -> None:
    for process in scene.job.processes("master-0"):
        os.kill(process.pid, signal.SIGKILL)


async def stopped_worker(scene: Scene) -> None:
    scene.spoilt += 1
    for pod in scene.some("worker"):
        scene.signal(pod, signal.SIGSTOP)
        changing = await scene.change()
        await asyncio.sleep(scene.dice.choice((1.0, 20.0)))
        scene.signal(pod, signal.SIGCONT)
        await changing


async def stopped_server(scene: Scene) -> None:
    for pod in scene.some("ps"):
        scene.signal(pod, signal.SIGSTOP)
        await asyncio.sleep(scene.dice.choice((1.0, 10.0)))
        scene.signal(pod, signal.SIGCONT)


async def cut_off_server(scene: Scene) -> None:
    workers = scene.some("worker", 9)
    for pod in scene.some("ps"):
        with cut_off(
            scene.job.pods()[pod].status.pod_ip, scene.dice.choice(("drop", "reject with tcp reset"))
        ):
            await asyncio.sleep(scene.dice.choice((1.0, 5.0)))
    scene.spoilt += len(workers)


@contextmanager
def cut_off(address: str, verdict: str) -> Iterator[None]:
    """Let no packet to or from an address of this machine come in."""
    table = f"kills_{secrets.token_hex(4)}"
    rules = [f"ip {way} {address} tcp flags & rst == 0 {verdict}" for way in ("saddr", "daddr")]
    _nft("\n".join((f"table inet {table} {{ chain in {{", HOOK, *rules, "}", "}", "")))
    try:
        yield
    finally:
        _nft(f"delete table inet {table}\n")


def _nft(text: str) -> None:
    subprocess.run(("nft", "-f", "-"), input=text, text=True, check=True)


def beside_a_change(kill: Callable[[Scene], Awaitable[None]]) -> Callable[[Scene], Awaitable[None]]:
    async def both(scene: Scene) -> None:
        changing = await scene.change()
        await scene.soon()
        await kill(scene)
        await changing

    both.__name__ = f"{kill.__name__} beside a change"
    return both


def beside_a_save(kill: Callable[[Scene], Awaitable[None]]) -> Callable[[Scene], Awaitable[None]]:
    async def both(scene: Scene) -> None:
        (scene.folder / "save").touch()
        await scene.soon()
        await kill(scene)

    both.__name__ = f"{kill.__name__} beside a save"
    return both


KILLS: Final[tuple[Callable[[Scene], Awaitable[None]], ...]] = (
    server,
    worker,
    chief,
    two_servers,
    master,
    stopped_worker,
    stopped_server,
    beside_a_change(server),
    beside_a_change(worker),
    beside_a_change(chief),
    beside_a_change(master),
    beside_a_save(server),
    beside_a_save(worker),
    beside_a_save(chief),
    beside_a_save(master),
)
CUTS: Final = (cut_off_server, beside_a_change(cut_off_server), beside_a_save(cut_off_server))


async def play(kills: int, seed: int) -> bool:
    """Return whether no record was lost, and none counts twice without a cause."""
    dice = random.Random(seed)
    faults = (CUTS if os.geteuid() == 0 and shutil.which("nft") else ()) + KILLS
    with TemporaryDirectory() as name:
        records = RECORDS_FOR_A_KILL * (kills + 2)
        async with stage_in(Path(name), "kills") as at:
            site, run = at.site, at.run
            (run / "kept").mkdir()
            scene, steps = Scene(site, Job(site), run, at.pids, dice), Steps(run)
            wanted = spec(run, records, 20_000)
            for role in wanted["replicaSpecs"].values():
                role["restartCount"] = 100
            await site.apply(wanted)
            await steps.more()
            (run / "save").touch()
            await until(lambda: kept(run), "a checkpoint")
            for number in range(kills):
                kill = faults[number] if number < len(faults) else dice.choice(faults)
                async with steps.standstill(f"{number} {kill.__name__}"):
                    await kill(scene)
                if dice.random() < 0.3:
                    (run / "save").touch()
            (run / "gate").touch()
            await site.until(scene.job.has_ended("Complete"))
        never, once, twice, most = await asyncio.to_thread(counts, run)
    print(f"{records} records: {once} once, {never} never, {twice} twice, at most {most} times;", end=" ")
    print(f"{scene.spoilt} workers were killed, stopped or cut off")
    return never == 0 and records - once <= BATCH * scene.spoilt


def main() -> None:
    """Play, and say what became of the records."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(not asyncio.run(play(options.kills, options.seed)))


if __name__ == "__main__":
    main()
