"""Samples of a job from its master's metrics, whoever has read them. Pure.

A sample is taken while the job trains with all its nodes: it has a speed, and no node that waits or starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from elasticjob.brain.history import Sample, Use

PREFIX: Final = "elasticjob_"
NODE: Final = "elasticjob_node_"
ON_THE_WAY: Final = ("waiting", "starting", "initial", "pending")
"""States of nodes that do not train yet: `elasticjob_nodes{state=…}`."""


@dataclass(frozen=True)
class Reading:
    """One value: the name of the metric, its labels, and the number."""

    name: str
    labels: Mapping[str, str]
    value: float


def sample_of(readings: Iterable[Reading], at: datetime) -> Sample | None:
    """Return what the metrics of one job say; None while it does not train with all its nodes."""
    plain, uses = dict[str, float](), defaultdict[tuple[str, str], dict[str, float]](dict)
    for reading in readings:
        if reading.name == "elasticjob_nodes":
            plain[f"nodes {reading.labels.get('state', '')}"] = reading.value
        elif reading.name.startswith(NODE) and "node" in reading.labels:
            node = reading.labels["node"], reading.labels.get("role", "")
            uses[node][reading.name.removeprefix(NODE)] = reading.value
        elif reading.name.startswith(PREFIX):
            plain[reading.name.removeprefix(PREFIX)] = reading.value
    workers, speed = int(plain.get("world_nodes", 0)), plain.get("steps_per_second", 0.0)
    if not workers or not speed or any(plain.get(f"nodes {state}") for state in ON_THE_WAY):
        return None
    nodes = tuple(_use(node, role, has) for (node, role), has in sorted(uses.items()))
    goodput = plain.get("goodput_ratio", plain.get("goodput"))
    return Sample(at, workers, speed, plain.get("samples_per_second", 0.0), nodes, goodput)


def _use(node: str, role: str, has: Mapping[str, float]) -> Use:
    return Use(
        node,
        role,
        cpu=has.get("cpu_cores", 0.0),
        memory=int(has.get("memory_bytes", 0)),
        cores=has.get("cpu_configured_cores", 0.0),
        bytes=int(has.get("memory_configured_bytes", 0)),
    )
