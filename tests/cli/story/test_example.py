"""The example as the demo applies it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticjob.cli.errors import Failure
from elasticjob.cli.story.example import load


def test_example_is_a_job_of_two_workers_that_may_be_one_or_three() -> None:
    example = load()
    assert example.key == ("default", "digits")
    assert [example.workers[name] for name in ("replicas", "minReplicas", "maxReplicas")] == [2, 1, 3]


def test_wishes_change_the_job_and_nothing_else() -> None:
    example = load()
    wished = example.recording(Path("/tmp/steps")).training(7)
    container = wished.workers["template"]["spec"]["containers"][0]
    assert container["args"][container["args"].index("--epochs") + 1] == "7"
    assert wished.job["spec"]["envs"] == {"ELASTICJOB_STEPS": {"value": "/tmp/steps"}}
    assert example == load()
    assert wished.others == example.others


@pytest.mark.parametrize(
    ("epochs", "step", "pace", "told"),
    [
        (30, 0, 99, 30),
        (30, 590, 99, 30),
        (30, 900, 99, 40),
        (30, 100_000, 999, 3343),
        (130, 900, 20, 50),
        (1, 59, 0, 11),
    ],
    ids=[
        "at once",
        "early",
        "when its epochs are over",
        "on a fast machine",
        "on a slow machine",
        "after one epoch",
    ],
)
def test_a_resumed_job_has_epochs_left_for_half_a_minute(
    epochs: int, step: int, pace: float, told: int
) -> None:
    patch = load().training(epochs).resume_patch(step, pace)["spec"]
    arguments = patch["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["args"]
    assert patch["suspend"] is False
    assert int(arguments[arguments.index("--epochs") + 1]) == told


def test_another_name_comes_with_another_place_for_checkpoints() -> None:
    renamed = load().rename("chaos-1")
    claims = {one["metadata"]["name"] for one in renamed.others if one["kind"] == "PersistentVolumeClaim"}
    volumes = renamed.workers["template"]["spec"]["volumes"]
    used = {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}
    assert renamed.key.name == "chaos-1"
    assert used == claims == {"chaos-1-checkpoints"}


@pytest.mark.parametrize(
    ("text", "why"), [(None, "is missing"), ("kind: Pod\n", "holds 0 ElasticJobs; leave exactly one in it")]
)
def test_file_that_is_no_example_is_explained(tmp_path: Path, text: str | None, why: str) -> None:
    file = tmp_path / "job.yaml"
    if text:
        file.write_text(text)
    with pytest.raises(Failure, match=why):
        load(file)


def test_the_example_is_what_restricted_namespaces_admit() -> None:
    pod = load().workers["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [container["securityContext"] for container in pod["containers"]] == [
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    ]
