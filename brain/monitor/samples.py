"""Samples of a job from its master's metrics, whoever has read them. Pure.

A sample is taken while the job trains with all its nodes: it has a speed, and no node that waits or starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from elasticjob.api.numbers import LARGEST_WORLD, decode_metric
from elasticjob.brain.history import Sample, Use

PREFIX: Final = "elasticjob_"
PLAIN: Final = ("world_nodes", "steps_per_second", "samples_per_second", "goodput", "goodput_ratio")
USES: Final = (
    "node_cpu_cores",
    "node_memory_bytes",
    "node_memory_peak_bytes",
    "node_cpu_configured_cores",
    "node_memory_configured_bytes",
)
"""Metrics of a job, and of its nodes."""
METRICS: Final = (*PLAIN, *USES, "nodes")
"""All that are read, without their prefix."""
LABELS: Final = ("node", "role", "state")
"""All that are read of their labels."""
LONGEST: Final = 253
"""Characters of a node's name."""
ON_THE_WAY: Final = ("waiting", "starting", "initial", "pending")
"""States of nodes that do not train yet: `elasticjob_nodes{state=…}`."""


@dataclass(frozen=True)
class Reading:
    """One value: the name of the metric, its labels, and the number."""

    name: str
    labels: Mapping[str, str]
    value: float


class Malformed(ValueError):
    """The metrics of a job say what no job does; the message names the metric."""


def sample_of(readings: Iterable[Reading], at: datetime) -> Sample | None:
    """Return what the metrics of one job say; None while it does not train with all its nodes.

    Raises Malformed: whoever may run a master may have it show any number.
    """
    plain, uses = dict[str, float](), defaultdict[tuple[str, str], dict[str, float]](dict)
    for reading in readings:
        name = reading.name.removeprefix(PREFIX)
        if name == "nodes":
            plain[f"nodes {reading.labels.get('state', '')}"] = reading.value
        elif name in USES and "node" in reading.labels:
            uses[reading.labels["node"], reading.labels.get("role", "")][name] = _number(reading)
        elif name in PLAIN:
            plain[name] = _number(reading)
    workers, speed = plain.get("world_nodes", 0.0), plain.get("steps_per_second", 0.0)
    if not workers or not speed or any(plain.get(f"nodes {state}") for state in ON_THE_WAY):
        return None
    if workers > LARGEST_WORLD:
        raise Malformed(f"a world of {workers:g} nodes: a job has at most {LARGEST_WORLD}")
    nodes = tuple(_use(node, role, has) for (node, role), has in sorted(uses.items()))
    goodput = plain.get("goodput_ratio", plain.get("goodput"))
    return Sample(at, int(workers), speed, plain.get("samples_per_second", 0.0), nodes, goodput)


def _number(reading: Reading) -> float:
    try:
        return decode_metric(reading.value)
    except ValueError as error:
        of = f" of {reading.labels['node'][:LONGEST]}" if "node" in reading.labels else ""
        raise Malformed(f"{reading.name}{of} is {reading.value!s:.32}, which no job reaches") from error


def _use(node: str, role: str, has: Mapping[str, float]) -> Use:
    return Use(
        node[:LONGEST],
        role[:LONGEST],
        cpu=has.get("node_cpu_cores", 0.0),
        memory=int(has.get("node_memory_bytes", 0)),
        cores=has.get("node_cpu_configured_cores", 0.0),
        bytes=int(has.get("node_memory_configured_bytes", 0)),
        peak=int(has.get("node_memory_peak_bytes", 0)),
    )
