"""The largest machine that takes a role's pods, and how much memory it has for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from elasticjob.api.resources import Bytes, container_requests, pod_requests
from elasticjob.api.v1alpha1.elasticjob import ReplicaSpec
from elasticjob.api.v1alpha1.placing import takes
from elasticjob.kube.objects.views import Node, Pod

MIB: Final = 1 << 20


@dataclass(frozen=True)
class Largest:
    """The machine that could give a pod the most memory, and how much its main container would get."""

    machine: str
    memory: Bytes


def largest(spec: ReplicaSpec, machines: Iterable[Node], kept: Callable[[str], Bytes]) -> Largest | None:
    """Return the largest machine for a role; None if none takes its pods.

    `kept` is the memory that pods which belong to a machine ask for, such as those of DaemonSets. Other pods
    may go; containers beside the main one stay.
    """
    beside, best = _beside(spec), None
    takers = sorted((node for node in machines if takes(node, spec.pod)), key=_memory, reverse=True)
    for node in takers:
        if best is not None and _memory(node) <= best.memory.value:
            break
        left = _memory(node) - kept(node.metadata.name).value - beside
        if best is None or left > best.memory.value:
            best = Largest(node.metadata.name, Bytes(max(0, int(left // MIB)) * MIB))
    return best


def stays(pod: Pod) -> bool:
    """Whether a pod belongs to its machine: that of a DaemonSet, or a static one, which its Node owns."""
    return any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)


def _memory(node: Node) -> int:
    return int(Bytes.parse(str(node.status.allocatable.get("memory", 0))).value)


def _beside(spec: ReplicaSpec) -> int:
    """The memory that a pod of the role asks for beside its main container."""
    whole, main = pod_requests(spec.pod), container_requests(spec.main_container or {})
    amounts = (each["memory"].value if "memory" in each else 0 for each in (whole, main))
    return int(next(amounts) - next(amounts))
