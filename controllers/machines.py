"""Which machines take a role's pods, by taints and labels, and how much memory the largest has for one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.api.resources import Bytes, Resources, container_requests, pod_requests
from elasticjob.api.v1alpha1.elasticjob import ReplicaSpec
from elasticjob.kube.objects import views
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Node, Pod

CLOSED: Final = ("NoSchedule", "NoExecute")
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


def takes(node: Node, pod: Manifest) -> bool:
    """Whether a machine's taints and labels let a pod in."""
    tolerations = pod.get("tolerations") or []
    closed = (taint for taint in node.spec.taints if taint.get("effect") in CLOSED)
    if not all(any(_tolerates(each, taint) for each in tolerations) for taint in closed):
        return False
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in (pod.get("nodeSelector") or {}).items()):
        return False
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms") or []
    return not terms or any(_matches(labels, term.get("matchExpressions") or []) for term in terms)


def requests(pod: Pod) -> Resources:
    """Return what a pod asks for, by the scheduler's rule."""
    spec = {"containers": _raw(pod.spec.containers), "initContainers": _raw(pod.spec.init_containers)}
    return pod_requests(spec)


def stays(pod: Pod) -> bool:
    """Whether a pod belongs to its machine: that of a DaemonSet, or a static one, which its Node owns."""
    return any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)


def _raw(containers: Iterable[views.Container]) -> list[Manifest]:
    return [
        {
            "resources": {"requests": each.resources.requests, "limits": each.resources.limits},
            "restartPolicy": each.restart_policy,
        }
        for each in containers
    ]


def _memory(node: Node) -> int:
    return int(Bytes.parse(str(node.status.allocatable.get("memory", 0))).value)


def _beside(spec: ReplicaSpec) -> int:
    """The memory that a pod of the role asks for beside its main container."""
    whole, main = pod_requests(spec.pod), container_requests(spec.main_container or {})
    amounts = (each["memory"].value if "memory" in each else 0 for each in (whole, main))
    return int(next(amounts) - next(amounts))


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _matches(labels: Mapping[str, str], expressions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether labels meet all expressions; comparisons of numbers (Gt, Lt) are taken as met."""
    for each in expressions:
        value, values = labels.get(each["key"]), each.get("values") or []
        match each["operator"]:
            case "In" if value not in values:
                return False
            case "NotIn" if value in values:
                return False
            case "Exists" if value is None:
                return False
            case "DoesNotExist" if value is not None:
                return False
    return True
