"""What a Node says about its end, and whom it concerns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.controllers.elasticjob.decide import decide as decide_job
from elasticjob.controllers.elasticjob.seen import Seen as SeenOfJob
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.nodes.drains import Notice, leaves_in, notices
from elasticjob.controllers.passes.plan import Delete
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE
from lab.build.jobs import NOW, job, life, master, resource, role, template

READY = {"type": "Ready", "status": "True"}
MAINTENANCE = {"type": "MaintenancePlanned", "status": "True"}
DRAINS = {"type": "DrainInProgress", "status": "True"}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Manifest:
    return {"key": key, "effect": effect, "value": value}


def tainted(key: str, **spec: Any) -> Manifest:
    return {"taints": [taint(key)], **spec}


@pytest.mark.parametrize(
    ("spec", "condition", "said"),
    [
        ({}, READY, []),
        (tainted("nvidia.com/gpu"), READY, []),
        ({"unschedulable": True}, READY, ["is cordoned"]),
        (tainted("node.kubernetes.io/unschedulable"), READY, ["is cordoned"]),
        (tainted("karpenter.sh/disrupted"), READY, ["will be emptied (taint {})"]),
        (tainted("ToBeDeletedByClusterAutoscaler"), READY, ["will be emptied (taint {})"]),
        (
            tainted("aws-node-termination-handler/spot-itn", unschedulable=True),
            READY,
            ["! ends within minutes (taint {})", "is cordoned"],
        ),
        (tainted("cloud.google.com/impending-node-termination"), READY, ["! ends within minutes (taint {})"]),
        (  # it may bring the next pod back
            {"taints": [taint("aws-node-termination-handler/spot-itn", "PreferNoSchedule")]},
            READY,
            ["ends within minutes (taint {})"],
        ),
        (tainted("example.com/gone"), READY, ["! ends within minutes (taint {})"]),
        ({}, MAINTENANCE, ["will be emptied (condition MaintenancePlanned)"]),
        ({}, DRAINS, ["will be emptied (condition DrainInProgress)"]),
        ({}, {**MAINTENANCE, "status": "False"}, []),
        ({}, {**READY, "status": "Unknown"}, ["does not report"]),
        (tainted("node.kubernetes.io/out-of-service"), READY, ["does not report"]),
    ],
)
def test_what_a_node_says(spec: Manifest, condition: Manifest, said: list[str]) -> None:
    """A notice to leave at once begins with an exclamation mark."""
    conditions = [READY, condition] if condition["type"] != "Ready" else [condition]
    about = {"metadata": {"name": "m1"}, "spec": spec, "status": {"conditions": conditions}}
    found = notices(NODE.convert(about), ("example.com/gone",))
    key = spec["taints"][0]["key"] if "taints" in spec else ""
    expected = [each.format(key) for each in said]
    assert [f"{'! ' * each.at_once}{each.why}" for each in found] == expected


SPOT = Notice("ends", at_once=True, taint=taint("spot", value="1"))


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"key": "spot", "operator": "Exists"}, False),
        ({"operator": "Exists"}, False),
        ({"key": "spot", "value": "1"}, False),
        ({"key": "spot", "value": "2"}, True),
        ({"key": "spot", "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": "other", "operator": "Exists"}, True),
    ],
)
def test_a_pod_that_tolerates_the_taint_stays(toleration: Manifest, holds: bool) -> None:
    assert SPOT.holds_for([toleration]) is holds


def test_what_is_no_taint_holds_for_all() -> None:
    assert Notice("will be emptied (condition MaintenancePlanned)").holds_for([{"operator": "Exists"}])


@pytest.mark.parametrize(
    ("pod", "age", "left"),
    [
        ({}, 0, 0),
        ({"schedulerName": "default-scheduler"}, 0, 0),
        ({"schedulerName": "bin-packer"}, 0, 60),
        ({"schedulerName": "bin-packer"}, 45, 15),
        ({"schedulerName": "bin-packer"}, 90, 0),
        ({"nodeName": "m1"}, 90, None),
    ],
)
def test_a_pod_that_would_come_back_does_not_leave_at_once(pod: Manifest, age: int, left: int | None) -> None:
    found = leaves_in(pod, NOW - timedelta(seconds=age), NOW)
    assert found == (None if left is None else timedelta(seconds=left))


@pytest.mark.parametrize("pinned", [{}, {"nodeName": "m1"}])
def test_a_template_that_names_its_machine_keeps_its_pods_there(pinned: Manifest) -> None:
    given = template()
    roles = dict.fromkeys(("worker", "dlrover-master"), role(1, template={"spec": given["spec"] | pinned}))
    asked, masters = job(roles), (master(notice=SPOT),)
    nodes = Seen(resource({"worker": 1}), asked, (life(0, notice=SPOT),), "10.0.0.1:50001")
    jobs = SeenOfJob(asked, nodes.resource, masters, (life(0),))
    actions = [*decide(nodes, NOW).actions, *decide_job(jobs, NOW).actions]
    deleted = [action.name for action in actions if isinstance(action, Delete)]
    assert deleted == ([] if pinned else ["digits-worker-0", "digits-master-0"])
