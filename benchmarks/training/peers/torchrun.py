"""Loads torchrun's rendezvous: its key-value store, and its dynamic rendezvous of nodes on that store."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from functools import partial
from typing import Final

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

from benchmarks.training.peers.clients import Call, Peer, main, threaded

LONG: Final = 600


def command(port: int, agents: int) -> list[str]:
    """Return what serves the store."""
    return [sys.executable, "-m", "benchmarks.training.peers.torchrun", "serve", str(port)]


def serve(port: int) -> None:
    """Serve the store for ever."""
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    while True:
        time.sleep(LONG)
        store.num_keys()


def client(port: int, index: int, kind: str) -> Call:
    """Return an addition to a key."""
    if kind != "keys":
        raise ValueError(f"a store has no {kind}")
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=LONG))
    return partial(store.add, f"key-{index}", 1)


def rendezvous(port: int, agents: int) -> float:
    """Join as so many agents; return how long it took until all had their rank."""
    options = {"join_timeout": str(LONG), "is_host": "0"}
    calls: list[Call] = []
    for _ in range(agents):
        about = RendezvousParameters(
            "c10d", f"127.0.0.1:{port}", "bench", agents, agents, local_addr="127.0.0.1", **options
        )
        backend, store = create_backend(about)
        calls.append(create_handler(store, backend, about).next_rendezvous)
    return threaded(calls)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    main(Peer(command, client, rendezvous))
