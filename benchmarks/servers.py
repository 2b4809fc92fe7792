"""Parameter servers: how long training stands still when they change, and what a pull and a push cost.

python -m benchmarks.servers standstill 10 100 400
python -m benchmarks.servers store --steps 500
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import numpy as np
from typer import Argument, Option

from benchmarks.commands import play
from benchmarks.figures import Sheet, show
from elasticjob.trainer.parameters import Move
from elasticjob.trainer.store import Adagrad, Table
from elasticjob.trainer.store.applied_updates import Key
from elasticjob.trainer.store.partitions import owners
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.tables import PARTITIONS
from elasticjob.trainer.store.wire import Connection, Gradients, Hello, Pull, Push, Request, connect
from lab.clusters.forked import stage_in
from lab.jobs.training import over_servers

USER: Final = 2 * 32 * 4
"""Bytes of a user: 32 floats, and the optimizer's."""
RECORDS: Final = 300_000
TARGETS: Final = {
    "servers 3 -> 4": 1.0,
    "servers 4 -> 2": 1.0,
    "migrate a server": 0.6,
    "workers 2 -> 4": 0.1,
    "checkpoint": 0.2,
    "SIGKILL of a server, back to the checkpoint": 2.0,
    "SIGKILL of a worker": 0.1,
    "workers -> 1": 0.1,
    "servers 2 -> 3, one worker": 1.0,
}
"""Seconds, at 100 MB on an idle machine with two cores."""
ROWS: Final = 1_000
TABLE: Final = Table("rows", 64, Adagrad(0.05))
IDS: Final = 100_000


def standstill(sizes: Annotated[list[int], Argument(min=1, help="megabytes of the model")]) -> None:
    """Measure how long a TensorFlow job stands still in each change, beside the targets.

    A job whose model has so many megabytes, half of them the optimizer's, runs on a devcluster of this
    machine; plans change it. A figure is the longest time without a step of any worker, from before to sixty
    steps after it. Processes are forked from one that has imported TensorFlow, as an agent's warm ones are.
    """
    found = [asyncio.run(_standstills(size)) for size in sizes]
    rows = [
        [change, f"{target:.1f}", *(f"{stood[change]:.2f}" for stood, _ in found)]
        for change, target in TARGETS.items()
    ]
    notes = [
        f"{size} MB: {once} records once, {never} never, {twice} twice, at most {most} times"
        for size, (_, (never, once, twice, most)) in zip(sizes, found, strict=True)
    ]
    show(Sheet(("seconds without a step", "target", *(f"{size} MB" for size in sizes)), rows, notes))


async def _standstills(megabytes: int) -> tuple[dict[str, float], list[int]]:
    """Return the standstills with a model of that size, and how often its records count."""
    with TemporaryDirectory() as name:
        async with stage_in(Path(name), "servers") as at:
            users = megabytes * 1_000_000 // USER
            stood = await over_servers.play(at.site, at.run, at.pids, records=RECORDS, users=users)
        return stood, await asyncio.to_thread(over_servers.counts, at.run)


def store(
    steps: Annotated[int, Option(min=5, help="pulls and pushes; the first fifth does not count")] = 500,
) -> None:
    """Measure the milliseconds to pull and to push 1,000 rows of 256 bytes of the store, over loopback.

    One worker and some servers as processes of this machine, without a master: random rows of a large table
    with Adagrad. With two servers or more each update is copied before it is acknowledged.
    """
    rows = [[str(number), *map(_deciles, _exchanges(number, steps))] for number in (1, 2, 3)]
    notes = [f"{ROWS} rows of {4 * TABLE.dim} bytes: median ms (p10–p90)"]
    show(Sheet(("servers", "pull", "push"), rows, notes))


def _deciles(samples: Sequence[float]) -> str:
    counted = samples[len(samples) // 5 :]
    low, *_, high = statistics.quantiles(counted, n=10)
    return f"{statistics.median(counted):.2f} ({low:.2f}–{high:.2f})"


def _exchanges(number: int, steps: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of pulls and pushes with so many servers."""
    chance, pulls, pushes = np.random.default_rng(0), list[float](), list[float]()
    owner = np.asarray(owners(number))
    with _servers(number) as connections:
        for step in range(steps):
            ids = np.unique(chance.integers(0, IDS, ROWS))
            mine = [ids[owner[ids % PARTITIONS] == place] for place in range(number)]
            pulls.append(_exchange(connections, [Pull(1, "rows", each.tobytes()) for each in mine]))
            key = Key("records", step, 0, 1)
            gradients = [np.ones((len(each), TABLE.dim), np.float32).tobytes() for each in mine]
            asks = [
                Push(1, key, (Gradients("rows", each.tobytes(), values),))
                for each, values in zip(mine, gradients, strict=True)
            ]
            pushes.append(_exchange(connections, asks))
    return pulls, pushes


def _exchange(connections: Sequence[Connection], asks: Sequence[Request]) -> float:
    """Return the milliseconds until all have answered."""
    began = time.perf_counter()
    for connection, ask in zip(connections, asks, strict=True):
        connection.send(ask)
    for connection in connections:
        connection.answer()
    return 1_000 * (time.perf_counter() - began)


@contextmanager
def _servers(number: int) -> Iterator[list[Connection]]:
    """Yield connections to so many servers."""
    ends = [multiprocessing.Pipe() for _ in range(number)]
    pipes = [mine for mine, _ in ends]
    for place, (_, theirs) in enumerate(ends):
        multiprocessing.Process(target=_serve, args=(place, theirs), daemon=True).start()
    addresses = tuple(pipe.recv() for pipe in pipes)
    for pipe in pipes:
        pipe.send(addresses)
    for pipe in pipes:
        pipe.recv()
    connections = [connect(each, "secret", 30.0) for each in addresses]
    try:
        for connection in connections:
            connection.send(Hello((TABLE,)))
            connection.answer()
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for pipe in pipes:
            pipe.send("end")


def _serve(place: int, pipe: Pipe) -> None:
    """Be a server: tell the address, hear those of all, serve until the pipe ends."""
    with Server("127.0.0.1", 0, token="secret") as server:
        pipe.send(server.address)
        addresses = pipe.recv()
        server.take_over(Move(1, 0, (), addresses, place, restores=0))
        server.use(1, addresses)
        pipe.send("ready")
        pipe.recv()


if __name__ == "__main__":
    play(standstill, store)
