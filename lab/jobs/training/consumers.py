"""A master and consumers of shards as processes of their own, to be killed: `with consuming(…) as job:`."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from elasticjob.cli.laptop.ports import free_port
from elasticjob.master import main
from elasticjob.master.cluster.settings import Settings
from elasticjob.trainer.shards import Dataset, Shards, Way
from lab.waiting import PATIENCE

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def hold(folder: Path, port: int) -> None:
    """Be the master of the job."""
    settings = Settings(
        job="consumed", port=port, token_file=folder / "token", state=folder / "state.json", nodes_max=4
    )
    raise SystemExit(asyncio.run(main.run(settings)))


def consume(folder: Path, worker: str, dataset: Dataset) -> None:
    """Be a consumer that writes the records of each lease to a file before it reports them."""
    way = Way(address=(folder / "address").read_text(), token_file=str(folder / "token"), node="node-0")
    with Shards(dataset, worker=worker, way=way) as shards:
        for shard in shards:
            lines = "".join(f"{shard.epoch} {record}\n" for record in shard.records)
            (folder / "out" / f"{shard.number}-{shard.lease}").write_text(lines)


@dataclass
class Consumed:
    """A job whose processes can be killed."""

    folder: Path
    dataset: Dataset
    port: int
    master: ForkServerProcess | None = None
    consumers: dict[str, ForkServerProcess] = field(default_factory=dict)

    def start_master(self) -> None:
        self.master = PROCESSES.Process(target=hold, args=(self.folder, self.port))
        self.master.start()

    def start(self, worker: str) -> None:
        self.consumers[worker] = PROCESSES.Process(target=consume, args=(self.folder, worker, self.dataset))
        self.consumers[worker].start()

    def kill_master(self) -> None:
        """Kill the master, and start the next one from what was saved."""
        kill(self.master)
        self.start_master()

    def kill(self, worker: str) -> None:
        """Kill a consumer, and start another one in its place."""
        kill(self.consumers[worker])
        self.start(worker)

    @property
    def outputs(self) -> int:
        """How many leases were worked on so far."""
        return len(os.listdir(self.folder / "out"))

    def wait_for(self, outputs: int) -> None:
        """Return when so many leases were worked on, or all consumers have ended."""
        until = time.monotonic() + PATIENCE
        while self.outputs < outputs and any(each.is_alive() for each in self.consumers.values()):
            assert time.monotonic() < until, f"{self.outputs} of {outputs} leases"
            time.sleep(0.01)

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


def kill(process: ForkServerProcess | None) -> None:
    """SIGKILL a process, and wait for its end."""
    if process is not None and process.pid is not None:
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)


@contextmanager
def consuming(folder: Path, dataset: Dataset, workers: list[str]) -> Iterator[Consumed]:
    """Run a master and consumers; afterwards none of them is left."""
    port = free_port()
    (folder / "out").mkdir()
    (folder / "token").write_text("secret")
    (folder / "address").write_text(f"127.0.0.1:{port}")
    job = Consumed(folder, dataset, port)
    job.start_master()
    try:
        for worker in workers:
            job.start(worker)
        yield job
    finally:
        for process in (*job.consumers.values(), job.master):
            kill(process)
