"""What a Node says about its end, and whom it concerns."""

from __future__ import annotations

import pytest

from elasticjob.controllers.nodes.drains import Notice, notices
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE

READY = {"type": "Ready", "status": "True"}


def told(spec: Manifest, *conditions: Manifest, more: tuple[str, ...] = ()) -> list[tuple[str, bool]]:
    node = NODE.convert(
        {"metadata": {"name": "m1"}, "spec": spec, "status": {"conditions": list(conditions)}}
    )
    return [(notice.why, notice.at_once) for notice in notices(node, more)]


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Manifest:
    return {"key": key, "effect": effect, "value": value}


@pytest.mark.parametrize(
    ("spec", "conditions", "expected"),
    [
        ({}, [READY], []),
        ({"taints": [taint("nvidia.com/gpu")]}, [READY], []),
        ({"unschedulable": True}, [READY], [("is cordoned", False)]),
        ({"taints": [taint("node.kubernetes.io/unschedulable")]}, [READY], [("is cordoned", False)]),
        (
            {"taints": [taint("karpenter.sh/disrupted")]},
            [READY],
            [("will be emptied (taint karpenter.sh/disrupted)", False)],
        ),
        (
            {"taints": [taint("ToBeDeletedByClusterAutoscaler")]},
            [READY],
            [("will be emptied (taint ToBeDeletedByClusterAutoscaler)", False)],
        ),
        (
            {"unschedulable": True, "taints": [taint("aws-node-termination-handler/spot-itn")]},
            [READY],
            [
                ("ends within minutes (taint aws-node-termination-handler/spot-itn)", True),
                ("is cordoned", False),
            ],
        ),
        (
            {"taints": [taint("cloud.google.com/impending-node-termination")]},
            [READY],
            [("ends within minutes (taint cloud.google.com/impending-node-termination)", True)],
        ),
        (
            {"taints": [taint("example.com/gone")]},
            [READY],
            [("ends within minutes (taint example.com/gone)", True)],
        ),
        (
            {},
            [READY, {"type": "MaintenancePlanned", "status": "True"}],
            [("will be emptied (condition MaintenancePlanned)", False)],
        ),
        (
            {},
            [READY, {"type": "DrainInProgress", "status": "True"}],
            [("will be emptied (condition DrainInProgress)", False)],
        ),
        ({}, [READY, {"type": "MaintenancePlanned", "status": "False"}], []),
        ({}, [{"type": "Ready", "status": "Unknown"}], [("does not report", False)]),
        ({"taints": [taint("node.kubernetes.io/out-of-service")]}, [READY], [("does not report", False)]),
    ],
)
def test_what_a_node_says(
    spec: Manifest, conditions: list[Manifest], expected: list[tuple[str, bool]]
) -> None:
    assert told(spec, *conditions, more=("example.com/gone",)) == expected


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
