"""A training whose pods end is promised no more than is known to be in storage."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.checks.advice import advice
from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.keeping import loss, outlook

ANEW = "no checkpoint of the job is known: unless its script writes and reads its own, it begins again"


def job(training: dict[str, Any] | None, *, image: str = "a", **spec: Any) -> ElasticJob:
    container = {"name": "main", "image": image}
    roles = {"worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    return ElasticJob.model_validate(
        {
            "metadata": {"name": "line"},
            "spec": {"replicaSpecs": roles, **spec},
            "status": {"phase": "Running", "training": training},
        }
    )


@pytest.mark.parametrize(
    ("training", "lost", "goes_on"),
    [
        (None, "", ""),  # it has never trained
        ({"round": 0, "worldSize": 0}, "", ""),
        ({"step": 1420, "round": 1}, f"{ANEW}, and its 1,420 steps are lost", None),
        ({"round": 1}, ANEW, None),  # a script that reports no steps
        (
            {"step": 1420, "round": 1, "checkpointStep": 1400},
            "",
            "it goes on from its newest checkpoint: step 1,400 or later",
        ),
        (
            {"step": 1420, "round": 1, "checkpointMemoryStep": 1419},
            "",
            "its progress is saved when it is suspended: step 1,419 or later",
        ),
    ],
)
def test_only_a_known_checkpoint_keeps_the_progress(
    training: dict[str, Any] | None, lost: str, goes_on: str | None
) -> None:
    old = job(training)
    assert (loss(old), outlook(old)) == (lost, lost if goes_on is None else goes_on)
    assert [str(each) for each in advice(job(training, suspend=True), old)] == (
        [f"spec.suspend: {lost}"] if lost else []
    )
    assert not advice(job(training, suspend=True), job(training, suspend=True))
    (refused,) = problems(job(training, image="b"), old)
    assert str(refused).endswith(f"and set suspend: false{'; ' * bool(outlook(old))}{outlook(old)}")
