"""Jobs as users start them: `elasticjob run` with two workers, or two servers and two workers with a master.

A worker over servers that is killed is started again, as its pod would be.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from elasticjob.cli.laptop.ports import free_port
from lab.paths import LOOPS
from lab.processes import Process
from lab.programs.training import MASTER, OverServers, environment
from lab.truths.records import Line, read

LIMIT: Final = 150.0
"""Seconds after which a job does not end."""


class Broken(AssertionError):
    """A law that does not hold, with what was seen."""


@dataclass
class Run:
    """A job: what it printed, the lines of its workers, and how its processes ended."""

    folder: Path
    codes: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """What the processes printed."""
        return "".join(each.read_text(errors="replace") for each in sorted(self.folder.glob("*.log")))

    @property
    def lines(self) -> list[Line]:
        """What the workers said, the oldest file first."""
        return read(self.folder / "lines")

    @property
    def ends(self) -> list[dict[str, Any]]:
        """The states in which workers ended; the last one is whole where servers have the state."""
        return [line["end"] for line in self.lines if "end" in line]

    def steps(self) -> list[int]:
        """The numbers of the steps that rank 0 counted."""
        return [line["done"] for line in self.lines if "done" in line and line["rank"] == 0]

    def check(self, holds: object, what: str) -> None:
        """Raise Broken, with the end of what was printed, if something does not hold."""
        if not holds:
            tail = "\n    ".join(self.text.splitlines()[-12:])
            raise Broken(f"{what} (codes {self.codes}, {self.seconds:.0f} s)\n    {tail}")


Watch = Callable[[Run], None]


def unwatched(_: Run) -> None:
    """Do nothing while a job runs."""


def fresh(folder: Path) -> Run:
    """Return the next run in a folder, which keeps only checkpoints of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("lines/*.jsonl", "*.log", "failed", "exported"):
        for each in folder.glob(pattern):
            each.unlink()
    return Run(folder)


def with_agents(
    script: str,
    folder: Path,
    arguments: Sequence[str],
    *,
    nodes: int = 1,
    flags: Sequence[str] = (),
    watch: Watch = unwatched,
) -> Run:
    """Run `elasticjob run` on `nodes` nodes, two workers in all; the codes are those of the nodes."""
    run, began = fresh(folder), time.monotonic()
    command = [sys.executable, "-m", "elasticjob.cli", "run", f"--nproc-per-node={2 // nodes}", *flags]
    if nodes > 1:
        command += [
            "--nnodes=1:2",
            f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            f"--rdzv-id=laws-{folder.name}",
        ]
    command += [str(LOOPS / script), str(folder), *arguments]
    processes = [Process(f"node-{node}", command, folder, environment({})) for node in range(nodes)]
    for each in processes:
        each.spawn()
    try:
        while any(each.code is None for each in processes) and time.monotonic() < began + LIMIT:
            watch(run)
            time.sleep(0.02)
    finally:
        for each in processes:
            each.stop(0.0)
    run.codes = [each.code or 0 for each in processes]
    run.seconds = time.monotonic() - began
    return run


def alone(script: str, folder: Path, arguments: Sequence[str]) -> Run:
    """Run `python script`: one process, without anything of ours around it."""
    run, began = fresh(folder), time.monotonic()
    ours = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}
    with (folder / "alone.log").open("w") as log:
        process = subprocess.run(
            [sys.executable, str(LOOPS / script), str(folder), *arguments],
            env=environment(ours),
            stdout=log,
            stderr=log,
            timeout=LIMIT,
            check=False,
        )
    run.codes, run.seconds = [process.returncode], time.monotonic() - began
    return run


def with_servers(
    script: str,
    serve: str,
    folder: Path,
    arguments: Sequence[str],
    *,
    goes_on: bool = False,
    away: float = 0.0,
    watch: Watch = unwatched,
) -> Run:
    """Run two servers and two workers; the codes are those of the workers.

    A worker that fails ends the job, unless it `goes_on` without it. With `away` a server is killed after the
    first checkpoint, and another one starts so many seconds later.
    """
    run, began = fresh(folder), time.monotonic()
    (folder / "kept").mkdir(exist_ok=True)
    (folder / "state.json").unlink(missing_ok=True)
    (folder / "token").write_text("secret")
    worker = (LOOPS / script, folder, *arguments)
    job = OverServers(folder, free_port(), serve=serve, worker=worker)
    run.codes = asyncio.run(_trained(job, run, watch, goes_on=goes_on, away=away))
    run.seconds = time.monotonic() - began
    return run


async def _trained(job: OverServers, run: Run, watch: Watch, *, goes_on: bool, away: float) -> list[int]:
    codes: dict[str, int] = {}
    workers = ["chaos-worker-0", "chaos-worker-1"]
    try:
        async with asyncio.timeout(LIMIT):
            for name in (MASTER, "chaos-ps-0", "chaos-ps-1", *workers):
                job.start(name)
            while len(codes) < len(workers):
                watch(run)
                if away and run.steps() and any((job.folder / "kept").iterdir()):
                    job.running["chaos-ps-1"].kill()
                    job.come_back("chaos-ps-1", away)
                    away = 0.0
                for name in set(workers) - codes.keys():
                    code = job.running[name].code
                    if code == -signal.SIGKILL:
                        job.start(name)
                    elif code is not None:
                        codes[name] = code
                if any(codes.values()) and not goes_on:
                    break
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    finally:
        job.end()
    return [codes.get(name, -signal.SIGKILL) for name in workers if name in codes or not any(codes.values())]
