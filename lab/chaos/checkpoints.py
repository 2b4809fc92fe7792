"""Random kills around saves: the state that comes back is never older than the newest committed checkpoint.

Two nodes train a divided model (FSDP2), which is copied to memory every 2 steps and written every 4. A
worker, an agent or a whole node with its memory is killed. Each second time that is right when a save begins
to appear in storage: its parts are written, told and committed around the kill. What is gone comes back.
Checked:

- no life that begins after a kill begins before the checkpoint that was committed at that moment;
- nor, where a worker alone was killed, before the newest copy in the memory of all nodes;
- all ranks of a world begin at the same step, each step has one loss, and at the end the parameters are those
  of one process that was never disturbed.

    python -m lab.chaos.checkpoints --kills 60 --seed 7

Exits with 1 if that was not so; what the workers wrote is then kept in a folder.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from elasticjob.cli.laptop.ports import free_port
from elasticjob.trainer.checkpoint.storage import Storage
from lab.chaos.training import END, Job, written
from lab.paths import SCRIPTS

SCRIPT: Final = SCRIPTS / "sharded.py"
NODES: Final = 2
BLOWS: Final = {"worker": 50, "agent": 20, "node": 30}
"""How often each kind of process is killed, in percent."""
TRAINS: Final = 6
"""Steps between two blows, at least."""
AIM: Final = 0.02
"""Seconds at most from the first byte of a save in storage to an aimed blow."""


class Saves(Job):
    """The processes of the training."""

    @property
    def where(self) -> Path:
        """Where checkpoints are."""
        return self.folder / "saved"

    def script(self) -> list[str]:
        """Return the script of the workers, and its arguments."""
        return [str(SCRIPT), str(self.where)]


@dataclass(frozen=True)
class Blow:
    """A kill: when, of whom, and the newest steps in storage and in the memory of all nodes before it."""

    at: float
    victim: str
    committed: int
    in_memory: int


def committed(where: Path) -> int:
    """Return the newest step in storage."""
    return max(Storage(str(where)).steps(), default=0) if where.exists() else 0


def in_memory(lines: Sequence[dict[str, Any]], since: float) -> int:
    """Return the newest step that all ranks of the present world have copied after the last blow, or 0."""
    begun = [line for line in lines if "begins" in line and line["at"] > since]
    if not begun:
        return 0
    world = begun[-1]["world"]
    newest: dict[int, int] = defaultdict(int)
    for line in lines:
        if "saved" in line and line["at"] > since:
            newest[line["rank"]] = max(newest[line["rank"]], line["saved"])
    return min((newest[rank] for rank in range(world)), default=0)


async def train(job: Saves, kills: int, seed: int, console: Console) -> list[Blow]:
    """Train to the end with `kills` blows; return them."""
    chosen, lines, blows = random.Random(seed), job.folder / "lines", list[Blow]()
    lines.mkdir()
    job.where.mkdir()
    for name in ("master", *(f"chaos-worker-{index}" for index in range(NODES))):
        await job.start(name)
    said = began = time.monotonic()
    last = 0.0
    while len(blows) < kills:
        async with asyncio.timeout(END):
            while steps_since(ordered(lines), last) < TRAINS:  # noqa: ASYNC110  # of other processes
                await asyncio.sleep(0.1)
        await asyncio.sleep(chosen.uniform(0, 0.5))
        if len(blows) % 2:
            known = set(job.where.iterdir())
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while set(job.where.iterdir()) <= known:  # noqa: ASYNC110  # of other processes
                        await asyncio.sleep(0.001)
            await asyncio.sleep(chosen.uniform(0, AIM))
        (victim,) = chosen.choices([*BLOWS], weights=[*BLOWS.values()])
        blow = Blow(time.time(), victim, committed(job.where), in_memory(ordered(lines), last))
        if job.hit(victim, chosen):
            blows.append(blow)
            last = time.time()
        if time.monotonic() - said > 10:
            said = time.monotonic()
            console.print(f"{said - began:4.0f} s  {len(blows)} of {kills} kills, step {blow.committed}")
    await asyncio.gather(*job.coming_back)
    async with asyncio.timeout(END):
        while not is_whole(ordered(lines), last):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.1)
        (lines / "stop").touch()
        codes = await asyncio.gather(*(process.wait() for process in job.running.values()))
    if any(codes):
        raise RuntimeError(f"exit codes {dict(zip(job.running, codes, strict=True))}: see {job.folder}/*.log")
    return blows


def steps_since(lines: Sequence[dict[str, Any]], since: float) -> int:
    """Return how many steps the workers have made since a moment, each counted for each of them."""
    return sum("step" in line and line["at"] > since for line in lines)


def is_whole(lines: Sequence[dict[str, Any]], since: float) -> bool:
    """Whether all nodes train together since a moment."""
    worlds = [line["world"] for line in lines if "begins" in line and line["at"] > since]
    return worlds[-NODES:] == [NODES] * NODES


def ordered(lines: Path) -> list[dict[str, Any]]:
    """Return all lines that workers wrote, the oldest first."""
    return sorted(written(lines), key=lambda line: float(line["at"]))


def problems(lines: Sequence[dict[str, Any]], blows: Sequence[Blow]) -> list[str]:
    """Return what is wrong, a sentence each."""
    wrong = []
    begun = [line for line in lines if "begins" in line]
    for number, blow in enumerate(blows):
        until = blows[number + 1].at if number + 1 < len(blows) else float("inf")
        for line in begun:
            if line["at"] > blow.at and line["begins"] < blow.committed:
                wrong.append(f"step {blow.committed} was committed, and a life began at {line['begins']}")
            kept = blow.victim == "worker" and blow.at < line["at"] < until
            if kept and line["begins"] < blow.in_memory:
                wrong.append(f"step {blow.in_memory} was in memory, and a life began at {line['begins']}")
    losses: dict[int, set[float]] = defaultdict(set)
    for line in lines:
        if "loss" in line:
            losses[line["step"]].add(round(line["loss"], 9))
    wrong += [f"step {step} has several losses: {found}" for step, found in losses.items() if len(found) > 1]
    results = [line for line in lines if "parameters" in line]
    if len(results) != NODES:
        wrong.append(f"{len(results)} workers ended with parameters")
    for line in results:
        expected = trained_alone(line["steps"])
        far = max(abs(a - b) for a, b in zip(line["parameters"], expected, strict=True))
        if far > 1e-8:
            wrong.append(f"parameters differ by {far:g} from one process's")
    return wrong


def trained_alone(steps: int) -> list[float]:
    """Return the parameters after so many steps of one process that nobody disturbs."""
    import torch

    from lab.scripts.sharded import loss_of, model_at_start

    model = model_at_start()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(model, step))
        optimizer.step()
    return [value for each in model.parameters() for value in each.flatten().tolist()]


def main() -> int:
    """Run it; return the exit code."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=60, help="in one go")
    parser.add_argument("--seed", type=int, default=None, help="of the kills")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="elasticjob-chaos-"))
    (folder / "token").write_text("chaos")
    job = Saves(folder, free_port(), nodes=NODES)
    console.print(f"seed {seed}, {options.kills} kills around saves; logs in {folder}")
    began = time.monotonic()
    try:
        blows = asyncio.run(train(job, options.kills, seed, console))
    finally:
        for process in job.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    lines = ordered(folder / "lines")
    wrong = problems(lines, blows)
    hit = ", ".join(f"{victim} {job.blows[victim]}" for victim in BLOWS)
    steps = max((line["step"] for line in lines if "step" in line), default=0)
    begun = [line for line in lines if "begins" in line]
    worlds = [sum(line["world"] == world for line in begun) for world in (1, 2)]
    console.print(f"{len(blows)} kills in {time.monotonic() - began:.0f} s: {hit}")
    console.print(f"{steps} steps; lives in worlds of 1 and of 2 workers: {worlds[0]}, {worlds[1]}")
    for sentence in wrong:
        console.print(f"[red]{sentence}")
    if wrong:
        console.print(f"what the workers wrote is in {folder}")
        return 1
    console.print(
        "each life began with the newest checkpoint; the parameters are those of one process (within 1e-8)"
    )
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
