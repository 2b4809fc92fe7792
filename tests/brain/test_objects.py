"""What Brain keeps of the cluster's objects."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.brain.monitor.objects import seen_job
from tests.kit.controllers.build import NOW, job, role

RANGE = {"minReplicas": 1, "maxReplicas": 5}


@pytest.mark.parametrize(
    ("sizes", "active", "phase", "fulfilment"),
    [
        (RANGE, 0, "Pending", 0.0),
        (RANGE, 1, "Running", 0.0),
        (RANGE, 3, "Running", 0.5),
        (RANGE, 5, "Running", 1.0),
        (RANGE, 0, "Succeeded", None),
        (RANGE, 0, "Failed", None),
        ({"replicas": 2}, 2, "Running", None),
    ],
)
def test_fulfilment_is_the_part_of_the_range_that_workers_have(
    sizes: dict[str, Any], active: int, phase: str, fulfilment: float | None
) -> None:
    status = {"phase": phase, "replicaStatuses": {"worker": {"active": active}}}
    given = job({"worker": {**role(None), **sizes}}, status=status)
    assert seen_job(given, NOW).status.get("fulfilment") == fulfilment
