"""TensorFlow for sessions: graphs in place of eager execution, and clusters that a session brings along.

A server knows its own address only. Each session names the cluster that it works with (ClusterSpec
propagation), and shares the state of the servers, so that servers never start again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import tensorflow as tf

__all__ = ["Jobs", "close", "config", "container", "said", "start_server", "task", "tf", "v1", "while_there"]

v1: Final = tf.compat.v1
v1.disable_eager_execution()
v1.enable_resource_variables()

Found = TypeVar("Found")
LOOK: Final = 1.0
"""Seconds between two looks whether servers are there, and for each."""
PATIENCE: Final = 60.0
"""Seconds that an operation may take before it fails with DeadlineExceeded."""
GREETING: Final = 3.0
"""Seconds until a busy server has greeted."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The preface of an HTTP/2 client, as gRPC sends it, with empty settings; the server answers with its own."""

Jobs = Mapping[str, Sequence[str] | Mapping[int, str]]
"""The cluster of a session: addresses of the tasks of each job."""


def start_server(address: str) -> tuple[Any, str]:
    """Start a server at host:port, port 0 for any; return it and its address."""
    server = v1.train.Server({"local": [address]})
    host, port = address.rpartition(":")[0], server.target.rpartition(":")[2]
    return server, f"{host}:{port}"


def config(jobs: Jobs, seconds: float = PATIENCE) -> Any:
    """Return the configuration of a session with servers that know only themselves."""
    present = {name: tasks for name, tasks in jobs.items() if tasks}
    made = v1.ConfigProto(
        cluster_def=v1.train.ClusterSpec(present).as_cluster_def(),
        operation_timeout_in_ms=int(seconds * 1000),
        allow_soft_placement=True,
    )
    made.experimental.share_session_state_in_clusterspec_propagation = True
    return made


def while_there(addresses: Iterable[str], work: Callable[[], Found]) -> Found:
    """Return what `work` returns. Raises ConnectionError if a server cannot be reached meanwhile.

    A session that is made waits for a server that was lost, as long as an operation may take.
    Its thread is left behind then.
    """
    box: list[Found | Exception] = []

    def do() -> None:
        try:
            box.append(work())
        except Exception as error:
            box.append(error)

    thread = threading.Thread(target=do, name="elasticjob-session", daemon=True)
    thread.start()
    thread.join(LOOK)
    while thread.is_alive():
        for address in addresses:
            _look(address)
        thread.join(LOOK)
    if isinstance(box[0], Exception):
        raise box[0]
    return box[0]


def _look(address: str) -> None:
    """Have a server greet: a machine takes connections for a process that is stopped."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=LOOK) as connection:
            connection.settimeout(GREETING)
            connection.sendall(PREFACE)
            if not connection.recv(1):
                raise ConnectionResetError("it closed the connection")
    except OSError as error:
        raise ConnectionError(f"the server at {address} cannot be reached: {error}") from None


def said(error: Any) -> str:
    """Return what an error of TensorFlow says, without the places in the graph."""
    lines = [line for line in error.message.splitlines() if line and not line.startswith(("\t", " "))]
    return lines[-1] if lines else type(error).__name__


def close(session: Any) -> None:
    """Close a session, in a thread: it hangs if one of its servers was lost."""
    threading.Thread(target=session.close, name="elasticjob-close", daemon=True).start()


def task(job: str, index: int = 0) -> str:
    """Return the device of a task."""
    return f"/job:{job}/task:{index}/device:CPU:0"


def container(version: int) -> str:
    """Return the name of the container with the values of a version of the cluster."""
    return f"v{version}"
