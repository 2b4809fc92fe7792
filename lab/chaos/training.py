"""`make chaos-training`: hundreds of random kills in one training; every record has to count once per epoch.

Four nodes train with a master of their own, all processes of this machine. At random moments one of them is
hit: a worker or an agent is killed, a whole node at once, the master, or a node is told to leave; what is
gone comes back a little later. Afterwards it is checked, in the lineage of the model that survives, that

- every record was taken exactly once in each epoch: none is missing, none is doubled;
- the parameters are those of a single process that trained without our library.

    python -m lab.chaos.training --kills 300 --seed 7

Exits with 1 if that was not so; what the workers wrote is then kept in a folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console

from elasticjob.api.rpc import environment as names
from elasticjob.cli.laptop.ports import free_port
from lab.paths import SCRIPTS
from lab.programs.processes import MASTER, Processes

SCRIPT: Final = SCRIPTS / "lineage.py"
NODES: Final = 4
LEAST: Final = 0.2  # seconds between two blows
USUAL: Final = 0.8  # seconds more, on average
AWAY: Final = 1.0  # seconds at most until what was hit is started again
END: Final = 300.0  # seconds for the rest of the training after the last blow
BLOWS: Final = {"worker": 45, "agent": 15, "node": 15, "leave": 15, "master": 10}
"""How often each kind of process is killed, in percent."""


@dataclass
class Job(Processes):
    """The master and the nodes of one training."""

    nodes: int = NODES
    epochs: int = 0

    def hit(self, victim: str, chosen: random.Random) -> bool:
        """Hit a victim; False if there is none now."""
        nodes = [name for name in self.running if name != MASTER]
        name = MASTER if victim == MASTER else chosen.choice(nodes) if nodes else ""
        process = self.running.get(name)
        if process is None or process.returncode is not None:
            return False
        match victim:
            case "worker":
                workers = workers_of(process.pid)
                if not workers:
                    return False
                chosen.choice(workers).kill()
            case "node":
                agent = psutil.Process(process.pid)
                for each in (*agent.children(recursive=True), agent):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
            case "leave":
                process.send_signal(signal.SIGTERM)
            case _:
                process.kill()
        self.blows[victim] += 1
        if victim != "worker":
            self.come_back(name, chosen.uniform(0, AWAY))
        return True

    def command(self, name: str) -> list[str]:
        """Return the command of the master or of a node."""
        if name == MASTER:
            return self.master(self.nodes)
        return ["-m", "elasticjob.cli", "run", "--max-restarts", "100000", *self.script()]

    def script(self) -> list[str]:
        """Return the script of the workers, and its arguments."""
        return [str(SCRIPT), str(self.epochs), str(self.folder / "saved")]

    def variables(self, name: str) -> dict[str, str]:
        """Return where workers write, and the identity of a node."""
        lines = {"LINEAGE": str(self.folder / "lines")}
        if name == MASTER:
            return lines
        end = {names.TERMINATION_LOG: str(self.folder / f"{name}.end")}
        return {**lines, **end, names.JOB: "chaos", names.ROLE: "worker"}


def workers_of(pid: int) -> list[psutil.Process]:
    """Return the training processes below an agent: they have the script's file of lines open."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            if any(file.path.endswith(".jsonl") for file in process.open_files()):
                found.append(process)
    return found


async def train(job: Job, kills: int, seed: int, console: Console) -> float:
    """Train to the end with `kills` blows; return the seconds that the blows took."""
    chosen = random.Random(seed)
    lines = job.folder / "lines"
    lines.mkdir()
    (lines / "slowly").touch()
    for name in (MASTER, *(f"chaos-worker-{index}" for index in range(NODES))):
        await job.start(name)
    while not any(lines.glob("*.jsonl")):  # noqa: ASYNC110  # of other processes
        await asyncio.sleep(0.1)
    began = said = time.monotonic()
    while job.blows.total() < kills:
        await asyncio.sleep(LEAST + chosen.expovariate(1 / USUAL))
        (victim,) = chosen.choices([*BLOWS], weights=[*BLOWS.values()])
        job.hit(victim, chosen)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            console.print(
                f"{said - began:4.0f} s  {job.blows.total()} of {kills} blows, step {newest(lines)}"
            )
    took = time.monotonic() - began
    (lines / "slowly").unlink()
    await asyncio.gather(*job.coming_back)
    async with asyncio.timeout(END):
        codes = await asyncio.gather(*(process.wait() for process in job.running.values()))
    if any(codes):
        raise RuntimeError(f"exit codes {dict(zip(job.running, codes, strict=True))}: see {job.folder}/*.log")
    return took


def written(lines: Path) -> Iterator[dict[str, Any]]:
    """Yield all lines that workers wrote."""
    for file in sorted(lines.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            yield json.loads(line)


def newest(lines: Path) -> int:
    """Return the last step that is done."""
    return max((line["done"] for line in written(lines) if "done" in line), default=0)


def problems(lines: Path, epochs: int, slots: int) -> list[str]:
    """Return what is wrong with the lineage: a sentence for each epoch, step or parameter."""
    from elasticjob.trainer.records.sampler import Position, Sampler
    from lab.scripts.lineage import BATCH, RECORDS

    rounds: dict[int, int] = {}
    for line in written(lines):
        if "done" in line:
            rounds[line["done"]] = max(rounds.get(line["done"], 0), line["round"])
    sampler = Sampler(RECORDS, BATCH, slots)
    each = sampler.steps_left(Position(), 1)
    wrong = [f"step {step} is missing" for step in range(1, epochs * each + 1) if step not in rounds]
    taken: Counter[tuple[int, int]] = Counter()
    for line in written(lines):
        if line.get("records") is None or rounds.get(line["step"]) != line["round"]:
            continue
        at = Position(line["epoch"], (line["step"] - 1) % each * BATCH)
        idle = not any(piece.count for piece in sampler.window(at).of(line["rank"], line["world"]))
        if not idle:
            taken.update((line["epoch"], record) for record in line["records"])
    for epoch in range(epochs):
        times = [taken[epoch, record] for record in range(RECORDS)]
        missing, doubled = times.count(0), sum(count > 1 for count in times)
        if missing or doubled:
            wrong.append(f"epoch {epoch}: {missing} records missing, {doubled} doubled")
    expected = trained_alone(epochs)
    results = [line["parameters"] for line in written(lines) if "parameters" in line]
    if not results:
        wrong.append("no worker ended with parameters")
    far = max((abs(a - b) for one in results for a, b in zip(one, expected, strict=True)), default=0.0)
    return [*wrong, f"parameters differ by {far:g} from one process's"] if far > 1e-8 else wrong


def trained_alone(epochs: int) -> list[float]:
    """Return the parameters after the same training in one process, without any of our library's loop."""
    import torch
    import torch.nn.functional as F

    from elasticjob.trainer.torch.records.data import permutation
    from lab.scripts.lineage import BATCH, CLASSES, WIDTH, initial, records

    x, y = records()
    weight, bias = initial((CLASSES, WIDTH)).requires_grad_(), initial((CLASSES,)).requires_grad_()
    optimizer = torch.optim.AdamW([weight, bias], lr=1e-2)
    for epoch in range(epochs):
        for batch in permutation(len(x), 0, epoch).split(BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(F.linear(x[batch], weight, bias), y[batch]))
            optimizer.step()
    return [*weight.flatten().tolist(), *bias.tolist()]


def main() -> int:
    """Run it; return the exit code."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=300, help="blows in one go")
    parser.add_argument("--epochs", type=int, default=250, help="of 63 steps: long enough for the blows")
    parser.add_argument("--seed", type=int, default=None, help="of the blows")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="elasticjob-chaos-"))
    (folder / "token").write_text("chaos")
    job = Job(folder, free_port(), epochs=options.epochs)
    console.print(f"seed {seed}, {options.kills} blows, {options.epochs} epochs; logs in {folder}")
    try:
        took = asyncio.run(train(job, options.kills, seed, console))
        wrong = problems(folder / "lines", options.epochs, NODES)
    finally:
        for process in job.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    rounds = max((line["round"] for line in written(folder / "lines") if "done" in line), default=0)
    blows = ", ".join(f"{victim} {job.blows[victim]}" for victim in BLOWS)
    console.print(f"{job.blows.total()} blows in {took:.0f} s: {blows}")
    console.print(f"{newest(folder / 'lines')} steps in {rounds} rounds")
    for sentence in wrong:
        console.print(f"[red]{sentence}")
    if wrong:
        console.print(f"what the workers wrote is in {folder}")
        return 1
    console.print("records missing 0, doubled 0; the parameters are those of one process (within 1e-8)")
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
