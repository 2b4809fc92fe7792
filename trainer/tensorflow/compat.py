"""TensorFlow for sessions: graphs in place of eager execution, and clusters that a session brings along.

A server knows its own address only. Each session names the cluster that it works with (ClusterSpec
propagation), and shares the state of the servers, so that servers never start again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

__all__ = ["Jobs", "config", "container", "message_of", "start_server", "task", "tf", "v1"]

v1: Final = tf.compat.v1
v1.disable_eager_execution()
v1.enable_resource_variables()

PATIENCE: Final = 60.0
"""Seconds that an operation may take before it fails with DeadlineExceeded."""
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


def message_of(error: Any) -> str:
    """Return what an error of TensorFlow says, without the places in the graph."""
    message = error.message.partition("\n\t [[")[0]
    lines = [line for line in message.splitlines() if line and not line.startswith(("\t", " "))]
    return lines[-1] if lines else type(error).__name__


def task(job: str, index: int = 0) -> str:
    """Return the device of a task."""
    return f"/job:{job}/task:{index}/device:CPU:0"


def container(version: int) -> str:
    """Return the name of the container with the values of a version of the cluster."""
    return f"v{version}"
