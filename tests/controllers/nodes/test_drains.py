"""What a Node says about its end, and whom it concerns."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.controllers.nodes.drains import Notice, notices
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE

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
