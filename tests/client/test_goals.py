"""What can be waited for, and of which jobs it is true."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.client import Unusable
from elasticjob.client.goals import goal, state

JOB: dict[str, Any] = {
    "metadata": {"name": "digits"},
    "status": {
        "phase": "Running",
        "workers": "1/2",
        "reason": "Unschedulable",
        "training": {"step": 7, "findings": [{"reason": "Hang"}]},
        "conditions": [
            {"type": "Running", "status": "True", "reason": "Unschedulable", "message": "0/3 nodes fit"},
            {"type": "Complete", "status": "False"},
        ],
    },
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("running", True),
        ("Running", True),
        ("complete", False),
        ("succeeded", False),
        ("ended", False),
        ("deleted", False),
        ("condition=Running", True),
        ("condition=complete=false", True),
        ("condition=Training", False),
        ("phase=running", True),
        ("phase=Failed", False),
        ("jsonpath={.status.training.step}=7", True),
        ("jsonpath='{.status.training.step}'=7", True),
        ("jsonpath={.status.training.step}=8", False),
        ("jsonpath={.status.training.step}", True),
        ("jsonpath={.status.training.epoch}", False),
        ("jsonpath={.status.training.findings[0].reason}=Hang", True),
        ("jsonpath={.status.training.findings[1].reason}=Hang", False),
        ('jsonpath={.status.conditions[?(@.type=="Complete")].status}=False', True),
    ],
)
def test_a_goal_is_true_of_a_job_or_not(text: str, holds: bool) -> None:
    assert goal(text).holds(JOB) is holds


@pytest.mark.parametrize(
    "text", ["", "done", "phase=Sleeping", "jsonpath={}=3", "jsonpath={.a[}=3", "running=1"]
)
def test_nonsense_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(Unusable, match="write "):
        goal(text)


def test_a_state_is_one_sentence() -> None:
    assert state(JOB) == "Running, 1/2 nodes, Unschedulable: 0/3 nodes fit"
    assert state({}) == "new"
