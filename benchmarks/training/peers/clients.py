"""The clients of a peer's master: threads in a few processes, so that the master is what is measured.

A peer's module says how its master is started and how a client calls it; `main` does the rest:

    python -m benchmarks.training.peers.NAME calls KIND CLIENTS SECONDS
    python -m benchmarks.training.peers.NAME rendezvous AGENTS

It prints `{"calls_per_second": …}` or `{"seconds": …}`.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Final

from lab.processes import Process, listens

PROCESSES: Final = 2
PATIENCE: Final = 60.0
STARTED: Final = 0.5  # seconds of calls that are not counted

Call = Callable[[], object]


@dataclass(frozen=True)
class Peer:
    """A master: its command for a port and so many agents, and how a client calls it in a given kind.

    `rendezvous` brings agents together at a port, and returns how long that took.
    """

    command: Callable[[int, int], list[str]]
    client: Callable[[int, int, str], Call]
    rendezvous: Callable[[int, int], float]


def main(peer: Peer) -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["calls", kind, clients, seconds]:
            with serving(peer, 1) as port:
                found = rate(peer, port, kind, int(clients), float(seconds))
                print(json.dumps({"calls_per_second": round(found)}))
        case ["rendezvous", agents]:
            with serving(peer, int(agents)) as port:
                print(json.dumps({"seconds": round(peer.rendezvous(port, int(agents)), 3)}))
        case _:
            sys.exit(__doc__)


def rate(peer: Peer, port: int, kind: str, clients: int, seconds: float) -> float:
    """Return the calls per second of so many clients."""
    spawn = multiprocessing.get_context("spawn")
    counts: Queue[int] = spawn.Queue()
    processes = min(clients, PROCESSES)
    together = spawn.Barrier(processes)
    shares = [clients // processes + (index < clients % processes) for index in range(processes)]
    running = [
        spawn.Process(
            target=_call, args=(peer, port, kind, index * clients, share, seconds, together, counts)
        )
        for index, share in enumerate(shares)
    ]
    for process in running:
        process.start()
    total = sum(counts.get(timeout=PATIENCE + seconds) for _ in running)
    for process in running:
        process.join()
    return total / seconds


def _call(
    peer: Peer,
    port: int,
    kind: str,
    first: int,
    clients: int,
    seconds: float,
    together: Barrier,
    counts: Queue[int],
) -> None:
    """Call with so many threads; put the number of calls in the measured time."""
    calls = [peer.client(port, first + index, kind) for index in range(clients)]
    together.wait(PATIENCE)
    begin = time.perf_counter() + STARTED

    def work(call: Call) -> int:
        done = 0
        while (now := time.perf_counter()) < begin + seconds:
            call()
            done += now >= begin
        return done

    with ThreadPoolExecutor(clients) as threads:
        counts.put(sum(threads.map(work, calls)))


@contextmanager
def serving(peer: Peer, agents: int) -> Iterator[int]:
    """Run the peer's master while the block lasts; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    with TemporaryDirectory() as folder:
        command = peer.command(port, agents)
        with Process("master", command, Path(folder), ready=lambda: listens(port)):
            yield port


def threaded(calls: list[Call]) -> float:
    """Make all calls at once, a thread each; return how long that took. Raises the first error."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as threads:
        for each in [threads.submit(call) for call in calls]:
            each.result()
        return time.perf_counter() - began
