"""The largest machine that takes a role's pods, and what its main container would get there."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.controllers.nodes.machines import Largest
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build.caches import caches, pod, raw
from lab.build.jobs import ended, job, oom, role, template


def machine(name: str, memory: str, ready: str = "True", **spec: Any) -> Manifest:
    status = {"allocatable": {"memory": memory}, "conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}


def there(machine: str, kind: str, memory: str = "1Gi") -> Any:
    """Return a pod on a machine, of an owner of a kind."""
    main = {"name": "main", "image": "x", "resources": {"requests": {"memory": memory}}}
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "x", "controller": True}
    return pod(7, spec={"nodeName": machine, "containers": [main]}, labels={}, owner=owner)


BESIDE = template(memory="512Mi")
BESIDE["spec"]["containers"].append(
    {"name": "logs", "image": "x", "resources": {"requests": {"memory": "256Mi"}}}
)
SMALL, LARGE = machine("m1", "4Gi"), machine("m2", "8Gi")
TAINT = {"key": "gpu", "effect": "NoSchedule"}
ROWS: dict[str, tuple[list[Manifest], list[Any], Manifest, tuple[str, str]]] = {
    "the largest": ([SMALL, LARGE], [], role(), ("m2", "8Gi")),
    "less a DaemonSet's pod": ([LARGE], [there("m2", "DaemonSet")], role(), ("m2", "7Gi")),
    "less a static pod": ([LARGE], [there("m2", "Node")], role(), ("m2", "7Gi")),
    "other pods may go": ([LARGE], [there("m2", "ReplicaSet")], role(), ("m2", "8Gi")),
    "the one with most left": ([SMALL, LARGE], [there("m2", "DaemonSet", "5Gi")], role(), ("m1", "4Gi")),
    "less containers beside": ([LARGE], [], role(template=BESIDE), ("m2", "7936Mi")),
    "whole MiB": ([machine("m1", "4194305Ki")], [], role(), ("m1", "4Gi")),
    "that takes its pods": ([SMALL, machine("m2", "8Gi", taints=[TAINT])], [], role(), ("m1", "4Gi")),
    "that reports": ([SMALL, machine("m2", "8Gi", ready="Unknown")], [], role(), ("m1", "4Gi")),
    "none": ([], [], role(), ("", "")),
}


@pytest.mark.parametrize(("machines", "pods", "spec", "largest"), ROWS.values(), ids=ROWS)
def test_largest_machine(
    machines: list[Manifest], pods: list[Any], spec: Manifest, largest: tuple[str, str]
) -> None:
    found = caches(*((NODE, raw(each)) for each in machines), *((POD, each) for each in pods))
    seen = found.largest(job({"worker": spec}), [oom(0)])
    assert [(each.machine, str(each.memory)) for each in seen.values()] == ([largest] if largest[0] else [])


def test_machines_are_looked_at_after_a_node_was_out_of_memory_only() -> None:
    found = caches((NODE, raw(LARGE)))
    assert found.largest(job(), [ended(0)]) == {}
    assert isinstance(found.largest(job(), [oom(0)])["worker"], Largest)
