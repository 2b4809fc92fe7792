"""`make bench-recovery`: how long training stands still when a worker or a node is lost, or a node joins.

Each system trains the same small network with two workers (gloo, CPU) and is hit `--rounds` times:

- *SIGKILL worker*: one node with two workers; one worker is killed.
- *lose node*: two nodes of one worker each, one may train alone; agent and worker of one are killed.
- *node joins*: the node that was lost starts again.

"next step" is the time from the kill to the next counted step of the remaining workers (for a join: how long
the others stood still); "full" is until the first step of both workers. Medians, with the least and the most.

    python -m benchmarks.recovery --rounds 5
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "benchmarks" / "scripts"
PATIENCE = 60.0  # seconds until a system that does not recover counts as failed
WIDTH = 120  # columns of the table where there is no terminal to ask
WARM_STEPS = 20  # steps at full size before each blow

Step = dict[str, Any]


@dataclass(frozen=True)
class System:
    """A way to run the training: `command(nodes, rank, port)`, then the script and its checkpoint."""

    name: str
    command: Callable[[int, int, int], list[str]]
    script: str


def ours(recovery: str) -> Callable[[int, int, int], list[str]]:
    """Return how `elasticjob run` is called."""

    def command(nodes: int, rank: int, port: int) -> list[str]:
        common = [
            sys.executable,
            "-m",
            "elasticjob.cli",
            "run",
            "--recovery",
            recovery,
            "--max-restarts",
            "1000",
        ]
        if nodes == 1:
            return [*common, "--standalone", "--nproc-per-node", "2"]
        return [*common, f"--nnodes=1:{nodes}", f"--node-rank={rank}", f"--rdzv-endpoint=127.0.0.1:{port}"]

    return command


def torchrun(nodes: int, rank: int, port: int) -> list[str]:
    """Return how torchrun is called, with its own defaults."""
    common = [sys.executable, "-m", "torch.distributed.run", "--max-restarts", "1000"]
    if nodes == 1:
        return [*common, "--standalone", "--nproc-per-node", "2"]
    host = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench"]
    host.append(f"--rdzv-conf=is_host={int(rank == 0)}")  # or the node that is killed may hold the rendezvous
    return [*common, f"--nnodes=1:{nodes}", *host, "--local-addr=127.0.0.1"]


SYSTEMS = (
    System("elasticjob, in-process", ours("in-process"), "elastic_steps.py"),
    System("elasticjob, restart", ours("restart"), "plain_steps.py"),
    System("torchrun", torchrun, "plain_steps.py"),
)


@dataclass(frozen=True)
class Pause:
    """One recovery, in seconds."""

    next_step: float
    full: float


NEVER = Pause(float("inf"), float("inf"))


@dataclass
class Run:
    """A job of one system: its node processes, and the steps that their workers print."""

    system: System
    nodes: int
    folder: Path
    port: int
    steps: queue.SimpleQueue[Step] = field(default_factory=queue.SimpleQueue)
    processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, rank: int) -> None:
        """Start one node."""
        prefix = self.system.command(self.nodes, rank, self.port)
        script = [str(SCRIPTS / self.system.script), str(self.folder / "checkpoint.pt")]
        process = subprocess.Popen(
            [*prefix, *script],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.processes[rank] = process
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def until(self, wanted: Callable[[Step], bool]) -> Step:
        """Return the next step for which `wanted` holds; TimeoutError if none comes."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                step = self.steps.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"{self.system.name}: no such step in {PATIENCE:.0f} s") from None
            if wanted(step):
                return step

    def settled(self) -> dict[int, Step]:
        """Return the last step of each process once all workers have taken a few together."""
        count, last = 0, {}
        while count < WARM_STEPS:
            step = self.until(bool)
            count = count + 1 if step["world"] == 2 else 0
            last[step["pid"]] = step
        return {pid: step for pid, step in last.items() if step["world"] == 2}

    def kill(self, rank: int) -> None:
        """Kill a node: its agent and its workers, at once."""
        tree = [psutil.Process(self.processes[rank].pid)]
        tree += tree[0].children(recursive=True)
        for blow in (psutil.Process.suspend, psutil.Process.kill):
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    blow(process)
        self.processes.pop(rank).wait()

    def close(self) -> None:
        """Kill everything."""
        for rank in list(self.processes):
            self.kill(rank)

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            start = line.find("{")
            if start >= 0 and '"pid"' in line:
                self.steps.put(json.loads(line[start:]))


@contextmanager
def running(system: System, nodes: int) -> Iterator[Run]:
    """Run a job of `nodes` nodes; nothing is left of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as folder:
        job = Run(system, nodes, Path(folder), free_port())
        try:
            for rank in range(nodes):
                job.start(rank)
                if nodes > 1:  # node 0 brings the master, or the rendezvous: the blows do not hit it
                    wait_for_listener(job.port)
            yield job
        finally:
            job.close()


def wait_for_listener(port: int) -> None:
    """Return when `port` accepts connections; TimeoutError if it does not in time."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"port {port} accepts no connections")


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def after(job: Run, at: float, lives: set[Any]) -> Pause:
    """Return how long it took from `at` to the next step in none of `lives`, and to one of both workers."""
    try:
        first = job.until(fresh(at, lives))
        full = first if first["world"] == 2 else job.until(lambda step: step["world"] == 2)
    except TimeoutError:
        return NEVER
    return Pause(first["at"] - at, full["at"] - at)


def fresh(at: float, lives: set[Any]) -> Callable[[Step], bool]:
    """Ask whether a step was counted after `at`, in none of the old `lives` (rounds, or processes)."""
    return lambda step: step["at"] > at and step["life"] not in lives


def kill_workers(system: System, rounds: int, done: Callable[[], None]) -> dict[str, list[Pause]]:
    """Measure SIGKILL of one worker."""
    pauses: list[Pause] = []
    while len(pauses) < rounds:
        with running(system, 1) as job:
            while len(pauses) < rounds:
                last = job.settled()
                at = time.time()
                os.kill(max(last, key=lambda pid: last[pid]["rank"]), signal.SIGKILL)
                pauses.append(after(job, at, {step["life"] for step in last.values()}))
                done()
                if pauses[-1] is NEVER:
                    break  # this job does not come back: the next blow gets another one
    return {"SIGKILL worker": pauses}


def lose_nodes(system: System, rounds: int, done: Callable[[], None]) -> dict[str, list[Pause]]:
    """Measure the loss of a node, and its return."""
    losses: list[Pause] = []
    joins: list[Pause] = []
    while len(losses) < rounds:
        with running(system, 2) as job:
            while len(losses) < rounds:
                loss, join = lose_node(job)
                losses.append(loss)
                joins += [join] if join else []
                done()
                if NEVER in (loss, join):
                    break
    return {"lose node": losses, "node joins": joins}


def lose_node(job: Run) -> tuple[Pause, Pause | None]:
    """Kill node 1 and start it again; return both pauses, the second only if the first came to an end."""
    last = job.settled()
    at = time.time()
    job.kill(1)
    try:
        first = job.until(fresh(at, {step["life"] for step in last.values()}))
    except TimeoutError:
        return NEVER, None
    job.start(1)
    return Pause(first["at"] - at, float("nan")), joined(job, first)


def joined(job: Run, last: Step) -> Pause:
    """Return how long the worker that was alone stood still for the other one."""
    started = time.time()
    try:
        while (step := job.until(bool))["world"] != 2:
            last = step
    except TimeoutError:
        return NEVER
    return Pause(step["at"] - last["at"], step["at"] - started)


MEASURES = (kill_workers, lose_nodes)


def cell(values: list[float]) -> str:
    """Return a median with its spread."""
    came = [value for value in values if value != float("inf")]
    if not values or any(value != value for value in values):
        return "–"
    if not came:
        return f"none of {len(values)} within {PATIENCE:.0f}"
    spread = f"{median(came):.2f} ({min(came):.2f}–{max(came):.2f})"
    return spread if came == values else f"{spread}, {len(came)} of {len(values)} within {PATIENCE:.0f}"


def report(results: dict[str, dict[str, list[Pause]]]) -> Table:
    """Return the table: one row per system and blow."""
    table = Table(box=None, header_style="dim", padding=(0, 3, 0, 0))
    for name, justify in (
        ("blow", "left"),
        ("system", "left"),
        ("next step, s", "right"),
        ("full, s", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # a literal
    for blow in ("SIGKILL worker", "lose node", "node joins"):
        for system, measured in results.items():
            pauses = measured.get(blow)
            if pauses:
                next_, full = [each.next_step for each in pauses], [each.full for each in pauses]
                table.add_row(blow, system, cell(next_), cell(full))
    return table


def main() -> None:
    """Measure all systems, print the table."""
    parser = ArgumentParser(
        prog="python -m benchmarks.recovery", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="blows of each kind")
    parser.add_argument(
        "--peer-rounds", type=int, help="the same for torchrun, which needs a minute for each"
    )
    parser.add_argument("--only", default="", help="systems whose name contains this")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the jobs are cleaned up
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    results: dict[str, dict[str, list[Pause]]] = {}
    for system in (each for each in SYSTEMS if args.only in each.name):
        rounds = args.peer_rounds if args.peer_rounds and system.command is torchrun else args.rounds
        for measure in MEASURES:
            name = f"{system.name}: {measure.__name__.replace('_', ' ')}"
            try:
                with Progress(console=console, transient=True) as progress:
                    task = progress.add_task(name, total=rounds)
                    measured = measure(system, rounds, partial(progress.advance, task))
            except TimeoutError as error:
                console.print(f"{name}: {error}", style="red")
                continue
            results.setdefault(system.name, {}).update(measured)
            console.print(f"{name}: {rounds} rounds", style="dim")
    console.print()
    console.print(report(results))
    console.print(f"\nmedian (least–most); load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; made by")
    console.print(shlex.join(["python", "-m", "benchmarks.recovery", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
