"""`python -m benchmarks.servers.store`: milliseconds to pull and to push rows of the store, over loopback.

One worker and some servers as processes of this machine, without a master: 1,000 rows of 256 bytes of a large
table with Adagrad, as random ids. With two servers or more each update is copied before it is acknowledged.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table as Page

from elasticjob.trainer.parameters import Move
from elasticjob.trainer.store import Adagrad, Table
from elasticjob.trainer.store.applied_updates import Key
from elasticjob.trainer.store.partitions import owners
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.tables import PARTITIONS
from elasticjob.trainer.store.wire import Connection, Gradients, Hello, Pull, Push, Request, connect

ROWS: Final = 1_000
TABLE: Final = Table("rows", 64, Adagrad(0.05))
IDS: Final = 100_000


def serve(place: int, pipe: Pipe) -> None:
    """Be a server: tell the address, hear those of all, serve until the pipe ends."""
    with Server("127.0.0.1", 0, token="secret") as server:
        pipe.send_bytes(server.address.encode())
        addresses = tuple(pipe.recv_bytes().decode().split())
        server.take_over(Move(1, 0, (), addresses, place, restores=0))
        server.use(1, addresses)
        pipe.send_bytes(b"ready")
        pipe.recv_bytes()


@contextmanager
def servers(number: int) -> Iterator[list[Connection]]:
    """Yield connections to so many servers."""
    pipes: list[Pipe] = []
    for place in range(number):
        mine, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=serve, args=(place, theirs), daemon=True).start()
        pipes.append(mine)
    addresses = [pipe.recv_bytes() for pipe in pipes]
    for pipe in pipes:
        pipe.send_bytes(b" ".join(addresses))
    for pipe in pipes:
        pipe.recv_bytes()
    connections = [connect(each.decode(), "secret", 30.0) for each in addresses]
    try:
        for connection in connections:
            connection.send(Hello((TABLE,)))
            connection.answer()
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for pipe in pipes:
            pipe.send_bytes(b"end")


def exchange(connections: list[Connection], asks: list[Request]) -> float:
    """Return the milliseconds until all have answered."""
    began = time.perf_counter()
    for connection, ask in zip(connections, asks, strict=True):
        connection.send(ask)
    for connection in connections:
        connection.answer()
    return 1_000 * (time.perf_counter() - began)


def measure(number: int, steps: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of pulls and pushes."""
    chance, pulls, pushes = np.random.default_rng(0), list[float](), list[float]()
    owner = np.asarray(owners(number))
    with servers(number) as connections:
        for step in range(steps):
            ids = np.unique(chance.integers(0, IDS, ROWS))
            mine = [ids[owner[ids % PARTITIONS] == place] for place in range(number)]
            pulls.append(exchange(connections, [Pull(1, "rows", each.tobytes()) for each in mine]))
            key = Key("records", step, 0, 1)
            gradients = [np.ones((len(each), TABLE.dim), np.float32).tobytes() for each in mine]
            asks: list[Request] = [
                Push(1, key, (Gradients("rows", each.tobytes(), values),))
                for each, values in zip(mine, gradients, strict=True)
            ]
            pushes.append(exchange(connections, asks))
    return pulls, pushes


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(description="Milliseconds to pull and to push 1,000 rows of 256 bytes.")
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    page = Page("servers", "pull", "push", title=f"{ROWS} rows of {4 * TABLE.dim} bytes: median ms (p10–p90)")
    for number in (1, 2, 3):
        cells = []
        for found in measure(number, args.steps):
            low, *_, high = statistics.quantiles(found[args.steps // 5 :], n=10)
            cells.append(f"{statistics.median(found[args.steps // 5 :]):.2f} ({low:.2f}–{high:.2f})")
        page.add_row(str(number), *cells)
    Console().print(page)


if __name__ == "__main__":
    main()
