"""Loads torchft's lighthouse with its own client: heartbeats of replicas, and one quorum of all."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from torchft.coordination import LighthouseClient

from benchmarks.training.peers.clients import Call, Peer, main, threaded

LONG: Final = timedelta(seconds=600)


def command(port: int, agents: int) -> list[str]:
    """Return the lighthouse's command."""
    program = str(Path(sys.prefix, "bin", "torchft_lighthouse"))
    return [program, "--min_replicas", str(agents), "--bind", f"127.0.0.1:{port}"]


def client(port: int, index: int, kind: str) -> Call:
    """Return a heartbeat of one replica."""
    if kind != "heartbeats":
        raise ValueError(f"a lighthouse has no {kind}")
    return partial(LighthouseClient(f"http://127.0.0.1:{port}", LONG).heartbeat, f"replica_{index}")


def rendezvous(port: int, agents: int) -> float:
    """Ask for a quorum with all replicas; return how long it took until all had it."""
    clients = [LighthouseClient(f"http://127.0.0.1:{port}", LONG) for _ in range(agents)]
    return threaded([partial(each.quorum, f"replica_{index}", LONG) for index, each in enumerate(clients)])


if __name__ == "__main__":
    main(Peer(command, client, rendezvous))
