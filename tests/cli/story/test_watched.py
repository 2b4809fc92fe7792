"""What is seen of a job: its steps as they are written, its pods, conditions and sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.story.seen import Condition, Message, Pod
from elasticjob.cli.story.steps import Step
from elasticjob.cli.story.watched import Record, conditions_of, is_echo, pod_of
from elasticjob.kube.objects.views import POD
from lab.build.objects import view

ONE = b'{"at":1.5,"round":1,"step":1,"world":2,"loss":2.25}\n'
TWO = b'{"at":2.5,"round":1,"step":2,"world":2}\n'


def test_steps_are_read_once_and_half_lines_later(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    record = Record(file)
    assert list(record.new()) == []
    file.write_bytes(ONE + TWO[:10])
    assert list(record.new()) == [Step(at=1.5, round=1, step=1, world=2, loss=2.25)]
    assert list(record.new()) == []
    file.write_bytes(ONE + TWO)
    assert list(record.new()) == [Step(at=2.5, round=1, step=2, world=2)]


def test_conditions_are_those_of_the_status() -> None:
    rows = [("Running", "True", "NodesRunning", "1 of 1 nodes run"), ("Suspended", "False", "Resumed", "on")]
    conditions = [dict(zip(("type", "status", "reason", "message"), row, strict=True)) for row in rows]
    spec = {"replicaSpecs": {"worker": {"replicas": 1}}}
    job = view(ELASTICJOB, "digits", spec=spec, status={"conditions": conditions})
    assert conditions_of(job) == (
        Condition("Running", True, "NodesRunning", "1 of 1 nodes run"),
        Condition("Suspended", False, "Resumed", "on"),
    )


@pytest.mark.parametrize(
    ("status", "deleted", "expected"),
    [
        ({}, None, Pod("digits-worker-2", "u", "worker", "Pending", index=2)),
        ({"phase": "Running"}, None, Pod("digits-worker-2", "u", "worker", "Running", index=2)),
        (
            {"phase": "Running"},
            "2026-11-21T15:00:00Z",
            Pod("digits-worker-2", "u", "worker", "Running", leaving=True, index=2),
        ),
    ],
)
def test_pod_is_seen_with_its_place_and_whether_it_leaves(
    status: dict[str, str], deleted: str | None, expected: Pod
) -> None:
    labels = {"elasticjob.dlrover/replica-type": "worker", "elasticjob.dlrover/replica-index": "2"}
    metadata = {"uid": "u", "labels": labels, "deletionTimestamp": deleted}
    assert pod_of(view(POD, "digits-worker-2", metadata=metadata, status=status)) == expected


def test_same_sentence_is_an_echo_for_a_while_only() -> None:
    before = [Message(10.0, "NodesRunning", "2 of 2 nodes run")]
    assert is_echo(Message(12.0, "Running", "2 of 2 nodes run"), before)
    assert not is_echo(Message(20.0, "Running", "2 of 2 nodes run"), before)
    assert not is_echo(Message(12.0, "Running", "1 of 2 nodes run"), before)
