"""`python -m lab.chaos.store`: hundreds of random kills around a store; every record counts once.

Servers and workers of one training, and its master, are processes of this machine. At random moments one of
them is killed, or two servers at once, or a worker is stopped until the others have gone on without it; what
is gone comes back a little later, workers under their own names. Each record has a row of its own on the
servers, which a gradient of -1 raises by one. Afterwards each of these rows has to be 1.

    python -m lab.chaos.store --kills 200 --seed 7

Exits with 1 if that was not so; what the processes wrote is then kept in a folder.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from elasticjob.cli.laptop.ports import free_port
from lab.paths import SCRIPTS
from lab.programs.processes import MASTER, Processes
from lab.truths.steps import Steps

SCRIPT: Final = SCRIPTS / "e2e" / "seen.py"
SERVERS: Final = 3
WORKERS: Final = 3
LEAST: Final = 0.2  # seconds between two blows
USUAL: Final = 1.3  # seconds more, on average
AWAY: Final = 1.0  # seconds at most until what was hit is started again
STOPPED: Final = 8.0  # seconds at most for which a worker is stopped: it is lost after 5
END: Final = 300.0  # seconds for the rest of the training after the last blow
RECORDS_A_BLOW: Final = 500
BLOWS: Final = {"worker": 40, "server": 30, "servers": 5, "stopped": 10, "master": 15}
"""How often each kind of process is killed, in percent."""


@dataclass
class Job(Processes):
    """The master, servers and workers of one training."""

    records: int = 0

    def hit(self, victim: str, chosen: random.Random) -> None:
        """Hit a victim, if there is one now."""
        role = {"servers": "ps", "server": "ps", "stopped": "worker"}.get(victim, victim)
        there = [name for name, each in self.running.items() if role in name and each.returncode is None]
        hit = chosen.sample(there, min(2 if victim == "servers" else 1, len(there)))
        for name in hit:
            if victim == "stopped":
                process = self.running.pop(name)
                process.send_signal(signal.SIGSTOP)
                self.later(self._go_on(name, process, chosen.uniform(0, STOPPED)))
            else:
                self.running[name].kill()
                self.come_back(name, chosen.uniform(0, AWAY))
        self.blows[victim] += bool(hit)

    async def _go_on(self, name: str, process: asyncio.subprocess.Process, after: float) -> None:
        await asyncio.sleep(after)
        process.send_signal(signal.SIGCONT)
        self.running[name] = process

    def command(self, name: str) -> list[str]:
        """Return the command of the master, a server or a worker."""
        if name == MASTER:
            return self.master(SERVERS + WORKERS)
        if "ps" in name:
            return ["-m", "elasticjob.trainer.store.serve", str(self.folder / "kept")]
        return [str(SCRIPT), str(self.records), str(self.folder)]


async def train(job: Job, kills: int, seed: int, console: Console) -> float:
    """Train to the end with `kills` blows; return the seconds that the blows took."""
    chosen = random.Random(seed)
    servers = [f"chaos-ps-{index}" for index in range(SERVERS)]
    workers = [f"chaos-worker-{index}" for index in range(WORKERS)]
    for name in (MASTER, *servers, *workers):
        await job.start(name)
    steps = Steps(job.folder)
    while not steps.lines():  # noqa: ASYNC110  # of other processes
        await asyncio.sleep(0.1)
    began = said = time.monotonic()
    while job.blows.total() < kills:
        await asyncio.sleep(LEAST + chosen.expovariate(1 / USUAL))
        job.hit(chosen.choices([*BLOWS], weights=[*BLOWS.values()])[0], chosen)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            blows, batches = job.blows.total(), len(steps.lines())
            console.print(f"{said - began:4.0f} s  {blows} of {kills} blows, {batches} batches")
    took = time.monotonic() - began
    (job.folder / "gate").touch()
    await asyncio.gather(*job.coming_back)
    async with asyncio.timeout(END):
        codes = [await job.running[name].wait() for name in workers]
    if any(codes):
        raise RuntimeError(f"exit codes of workers {codes}: see {job.folder}/*.log")
    return took


async def main() -> int:
    """Run one training; return the exit code."""
    parser = ArgumentParser(description="Random kills around a store: each record has to count once.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10_000)
    args = parser.parse_args()
    console, folder = Console(), Path(tempfile.mkdtemp(prefix="chaos-store-"))
    (folder / "token").write_text("secret")
    job = Job(folder, free_port(), records=args.kills * RECORDS_A_BLOW)
    console.print(f"seed {args.seed}, {job.records} records, {SERVERS} servers, {WORKERS} workers, {folder}")
    try:
        took = await train(job, args.kills, args.seed, console)
    finally:
        await asyncio.gather(*job.coming_back, return_exceptions=True)
        for process in job.running.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
    counts = Counter(json.loads((folder / "counts").read_text()))
    wrong = {count: records for count, records in counts.items() if count != 1}
    sent = len(Steps(folder).lines())
    console.print(
        f"{job.blows.total()} blows in {took:.0f} s: {dict(job.blows)}; {sent} batches acknowledged"
    )
    console.print(f"records counted once {counts[1]} of {job.records}; otherwise {wrong or 'none'}")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
