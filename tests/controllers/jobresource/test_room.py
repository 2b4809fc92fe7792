"""How much room a cluster has for a job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.controllers.jobresource.room import EVERY, Rooms, learns
from elasticjob.kube.cache.protocol import Upserted
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build.caches import caches, pod
from lab.build.caches import machine as a_machine
from lab.build.jobs import NOW, job, resource, role, template

BIG = {"cpu": "4", "memory": "8Gi", "pods": "10"}


def machine(
    name: str = "m1", ready: str = "True", labels: Manifest | None = None, **spec: Any
) -> tuple[Kind[Any], Item]:
    """A Node with 4 cores and 8 GiB."""
    return NODE, a_machine(
        name, ready, metadata={"labels": labels or {}}, status={"allocatable": BIG}, **spec
    )


def asks(cpu: str, node: str = "m1", phase: str = "Running", index: int = 7) -> Any:
    """Return a pod of somebody that asks for cores."""
    main = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return pod(index, spec={"nodeName": node, "containers": [main]}, status={"phase": phase}, labels={})


def needs(cpu: str, **pod: Any) -> dict[str, Manifest]:
    """Return a role without a size, each node of which asks for cores and half a GiB."""
    made = template(resources={"requests": {"cpu": cpu, "memory": "512Mi"}})
    made["spec"] |= pod
    return {"worker": role(None, minReplicas=1, maxReplicas=99, template=made)}


ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ZONE]}}}
TAINTED = machine(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
ROWS: dict[str, tuple[dict[str, Manifest], list[Any], list[Any], int]] = {
    "an empty machine": (needs("1"), [machine()], [], 4),
    "two": (needs("3"), [machine(), machine("m2")], [], 2),
    "others ask for some": (needs("1"), [machine()], [asks("1500m")], 2),
    "ended pods ask for nothing": (needs("1"), [machine()], [asks("1500m", phase="Succeeded")], 4),
    "waiting pods come first": (needs("1"), [machine()], [asks("1", node="", phase="Pending")], 3),
    "pods are counted": (needs("1m"), [machine()], [asks("0", index=n) for n in range(8)], 2),
    "cordoned": (needs("1"), [machine(unschedulable=True)], [], 0),
    "does not report": (needs("1"), [machine(ready="Unknown")], [], 0),
    "tainted": (needs("1"), [TAINTED], [], 0),
    "tolerated": (needs("1", tolerations=[{"key": "gpu", "operator": "Exists"}]), [TAINTED], [], 4),
    "tolerated by value": (needs("1", tolerations=[{"key": "gpu", "value": "no"}]), [TAINTED], [], 0),
    "selected": (
        needs("1", nodeSelector={"zone": "a"}),
        [machine(labels={"zone": "a"}), machine("m2", labels={"zone": "b"})],
        [],
        4,
    ),
    "by affinity": (needs("1", affinity=AFFINITY), [machine(labels={"zone": "a"}), machine("m2")], [], 4),
    "a device that no machine has": (
        {"worker": role(None, maxReplicas=9, template=template(resources={"limits": {"nvidia.com/gpu": 1}}))},
        [machine()],
        [],
        0,
    ),
}


@pytest.mark.parametrize(("roles", "machines", "pods", "more"), ROWS.values(), ids=ROWS)
def test_room(roles: dict[str, Manifest], machines: list[Any], pods: list[Any], more: int) -> None:
    found = caches(*machines, *((POD, each) for each in pods))
    assert Rooms(found).of(job(roles), resource({}), NOW).roles == {"worker": more}


def test_the_resource_of_the_role_counts_and_the_largest_machine_is_told() -> None:
    found = caches(machine(), machine("m2"), (POD, asks("1")))
    sizes = resource({"worker": 1}, resources={"worker": {"cpu": "2"}})
    room = Rooms(found).of(job(needs("1")), sizes, NOW)
    assert (room.roles, room.machine.manifest()) == ({"worker": 3}, {"cpu": "4", "memory": "8Gi"})


def test_the_cluster_is_looked_at_every_ten_seconds_for_all_jobs() -> None:
    found = caches(machine())
    rooms, digits = Rooms(found), job(needs("1"))
    assert rooms.of(digits, resource({}), NOW).roles == {"worker": 4}
    found.machines.take(Upserted(machine("m2")[1]))
    assert rooms.of(digits, resource({}), NOW + EVERY - timedelta(seconds=1)).roles == {"worker": 4}
    assert rooms.of(digits, resource({}), NOW + EVERY).roles == {"worker": 8}


@pytest.mark.parametrize(
    ("roles", "spec", "now", "expected"),
    [
        ({"worker": role(None, maxReplicas=4)}, {}, 3, True),
        ({"worker": role(None, maxReplicas=4)}, {}, 4, False),
        ({"worker": role(None)}, {}, 4, True),
        ({"worker": role(2, maxReplicas=4)}, {}, 2, False),
        ({"worker": role(None, maxReplicas=4, autoScale=False)}, {}, 2, False),
        ({"worker": role(None, maxReplicas=4)}, {"optimizeMode": "manual"}, 2, False),
        ({"worker": role(None, maxReplicas=4)}, {"suspend": True}, 2, False),
    ],
)
def test_the_room_is_looked_for_while_a_role_may_grow(
    roles: dict[str, Manifest], spec: Manifest, now: int, expected: bool
) -> None:
    assert learns(job(roles, **spec), resource({"worker": now})) is expected
