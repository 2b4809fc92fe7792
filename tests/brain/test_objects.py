"""What Brain keeps of the cluster's objects."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.brain.monitor.objects import seen_job
from tests.kit.controllers.build import NOW, job, role


@pytest.mark.parametrize(
    ("sizes", "active", "fulfilment"),
    [
        ({"minReplicas": 1, "maxReplicas": 5}, 1, 0.0),
        ({"minReplicas": 1, "maxReplicas": 5}, 3, 0.5),
        ({"minReplicas": 1, "maxReplicas": 5}, 5, 1.0),
        ({"replicas": 2}, 2, None),
    ],
)
def test_fulfilment_is_the_part_of_the_range_that_workers_have(
    sizes: dict[str, Any], active: int, fulfilment: float | None
) -> None:
    given = job(
        {"worker": {**role(None), **sizes}}, status={"replicaStatuses": {"worker": {"active": active}}}
    )
    assert seen_job(given, NOW).status.get("fulfilment") == fulfilment
