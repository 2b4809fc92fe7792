"""Loads DLRover's master with its own messages and its own client, by gRPC.

Its agents poll for their world every five seconds. Here each asks again at once: that is the best it can do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from dlrover.python.elastic_agent.master_client import GrpcMasterClient

from benchmarks.training.peers.clients import Call, Peer, main

TRAINING: Final = "elastic-training"
AT_ONCE: Final = 32  # requests of agents at a time; the master has 64 threads
SHARDS: Final = 100_000
PATIENCE: Final = 600  # seconds for one request


def command(port: int, agents: int) -> list[str]:
    """Return the master's command without Kubernetes."""
    words = [sys.executable, "-m", "dlrover.python.master.main", "--platform", "local", "--job_name", "bench"]
    return [*words, "--port", str(port), "--node_num", str(agents)]


def client(port: int, index: int, kind: str) -> Call:
    """Return a call of one agent."""
    master = agent(port, index)
    return CALLS[kind](master, index)


def agent(port: int, index: int) -> Any:
    """Return the client of one agent."""
    return GrpcMasterClient(f"127.0.0.1:{port}", index, "worker", timeout=PATIENCE)


def shards(master: Any, _: int) -> Call:
    """Return a call that alternates: a lease of one shard, its result."""
    master.report_dataset_shard_params(  # only the first report counts
        batch_size=1, num_epochs=1, dataset_size=SHARDS, num_minibatches_per_shard=1, dataset_name="records"
    )
    held: list[int] = []

    def ask() -> None:
        if held:
            master.report_task_result("records", held.pop(), "")
            return
        _, task = master.get_task("records")
        if task.task_id < 0:
            raise RuntimeError("the shards are spent")
        held.append(task.task_id)

    return ask


def heartbeats(master: Any, _: int) -> Call:
    """Return a heartbeat."""
    return lambda: master.report_heart_beat(int(time.time()))


def keys(master: Any, index: int) -> Call:
    """Return an addition to a key."""
    return partial(master.kv_store_add, f"key-{index}", 1)


CALLS: Final[dict[str, Callable[[Any, int], Call]]] = {
    "shards": shards,
    "heartbeats": heartbeats,
    "keys": keys,
}


def rendezvous(port: int, agents: int) -> float:
    """Join as so many agents; return how long it took until all had their world."""
    masters = [agent(port, index) for index in range(AT_ONCE)]
    masters[0].report_rdzv_params(agents, agents, PATIENCE, 1, PATIENCE)

    def share(index: int, do: Callable[[Any, int], object]) -> None:
        for node in range(index, agents, AT_ONCE):
            do(masters[index], node)

    def join(master: Any, node: int) -> None:
        master._node_id = node
        master.join_rendezvous(node, 8, TRAINING)

    def world(master: Any, node: int) -> None:
        while len(master.get_comm_world(TRAINING, node)[2]) < agents:
            pass

    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for do in (join, world):
            list(threads.map(share, range(AT_ONCE), [do] * AT_ONCE))
    return time.perf_counter() - began


if __name__ == "__main__":
    main(Peer(command, client, rendezvous))
