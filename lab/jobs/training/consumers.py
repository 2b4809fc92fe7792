"""A master and consumers of shards as processes of their own, to be killed: `with consuming(…) as job:`."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from elasticjob.cli.laptop.ports import free_port
from elasticjob.master import main
from elasticjob.master.cluster.settings import Settings
from elasticjob.trainer.shards import Dataset, Shards, Way
from lab.waiting import PATIENCE, wait_until

MASTER = "master"
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def hold(folder: Path, port: int) -> None:
    """Be the master of the job."""
    settings = Settings(
        job="consumed", port=port, token_file=folder / "token", state=folder / "state.json", nodes_max=4
    )
    raise SystemExit(asyncio.run(main.run(settings)))


def way_in(folder: Path, node: str) -> Way:
    """Return how a process of a node reaches the master of a folder."""
    return Way(address=(folder / "address").read_text(), token_file=str(folder / "token"), node=node)


def consume(folder: Path, dataset: Dataset, worker: str) -> None:
    """Be a consumer that writes the records of each lease to a file before it reports them."""
    with Shards(dataset, worker=worker, way=way_in(folder, "node-0")) as shards:
        for shard in shards:
            lines = "".join(f"{shard.epoch} {record}\n" for record in shard.records)
            (folder / "out" / f"{shard.number}-{shard.lease}").write_text(lines)


@dataclass
class Consumed:
    """A job whose processes can be killed."""

    folder: Path
    dataset: Dataset
    port: int
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)

    def way(self, node: str) -> Way:
        """Return how a process of a node reaches the master."""
        return way_in(self.folder, node)

    def start(self, name: str) -> None:
        """Start the master, or a consumer."""
        target, of = (hold, self.port) if name == MASTER else (partial(consume, worker=name), self.dataset)
        self.processes[name] = PROCESSES.Process(target=target, args=(self.folder, of))
        self.processes[name].start()

    def kill(self, name: str) -> None:
        """Kill a process, and start another one in its place: a master from what was saved."""
        kill(self.processes[name])
        self.start(name)

    @property
    def consumers(self) -> list[ForkServerProcess]:
        """All but the master."""
        return [process for name, process in self.processes.items() if name != MASTER]

    @property
    def outputs(self) -> int:
        """How many leases were worked on so far."""
        return len(os.listdir(self.folder / "out"))

    def wait_for(self, outputs: int) -> None:
        """Return when so many leases were worked on, or all consumers have ended."""
        wait_until(
            lambda: self.outputs >= outputs or not any(each.is_alive() for each in self.consumers),
            f"{outputs} leases",
        )

    def status(self) -> dict[str, Any]:
        """Return what the master's page says."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/status", timeout=PATIENCE) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except URLError:  # the next master is on its way
                assert time.monotonic() < until
                time.sleep(0.02)

    def results(self) -> dict[int, list[str]]:
        """Return the records of each shard as its largest lease wrote them."""
        found: dict[int, tuple[int, Path]] = {}
        for path in (self.folder / "out").iterdir():
            number, lease = map(int, path.name.split("-"))
            found[number] = max(found.get(number, (-1, path)), (lease, path))
        return {number: path.read_text().splitlines() for number, (_, path) in found.items()}


def kill(process: ForkServerProcess) -> None:
    """SIGKILL a process, and wait for its end."""
    process.kill()
    process.join(PATIENCE)


@contextmanager
def consuming(folder: Path, dataset: Dataset, workers: list[str]) -> Iterator[Consumed]:
    """Run a master and consumers; afterwards none of them is left."""
    port = free_port()
    (folder / "out").mkdir()
    (folder / "token").write_text("secret")
    (folder / "address").write_text(f"127.0.0.1:{port}")
    job = Consumed(folder, dataset, port)
    try:
        for name in (MASTER, *workers):
            job.start(name)
        yield job
    finally:
        for process in reversed(job.processes.values()):  # the master last
            kill(process)
