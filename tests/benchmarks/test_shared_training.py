"""What users of both systems write for the same training, and when a job counts as training again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.shared.systems import QUEUE, Asked, System
from benchmarks.shared.training.jobs import IMAGE, PLAIN, SCRIPTS, SLEEP, columns
from benchmarks.shared.training.scene import WELL, longest, trains_well
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.story.steps import Step
from lab.paths import ROOT

VOLUMES = Path("/volumes")
COLUMNS = columns(VOLUMES)


@pytest.mark.parametrize("system", COLUMNS.values(), ids=COLUMNS)
def test_all_ask_for_the_same_image_volume_and_place(system: System) -> None:
    made = system.manifest(Asked("job", 3, 1, "one"))
    assert made["metadata"]["labels"] == {QUEUE: "one"}
    for wanted in (IMAGE, "/volumes/job", "{'cpu': '100m', 'nvidia.com/gpu': '1'}", "SAVE_EVERY"):
        assert wanted in str(made)


def test_a_plain_script_is_the_same_under_both() -> None:
    ours = COLUMNS["plain"].manifest(Asked("job", 3, 1, "one"))
    theirs = COLUMNS["trainer"].manifest(Asked("job", 3, 1, "one"))
    [container] = ours["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    assert container["command"] == ["elasticjob", "run", f"/code/{PLAIN}"]
    assert theirs["spec"]["trainer"]["command"][-1] == f"/code/{PLAIN}"


@pytest.mark.parametrize("system", COLUMNS.values(), ids=COLUMNS)
def test_another_teams_job_sleeps(system: System) -> None:
    assert str([*SLEEP]) in str(system.manifest(Asked("owner", 1, 1, "one", brief=True)))


def test_our_jobs_are_valid_and_the_scripts_are_there() -> None:
    for word in ("ours", "plain"):
        assert ELASTICJOB.convert(COLUMNS[word].manifest(Asked("job", 3, 1, "one"))).key.name == "job"
    assert all((ROOT / path).exists() for path in SCRIPTS.values())


@pytest.mark.parametrize(
    ("first", "workers", "after", "well"),
    [
        (1, 3, 1, True),
        (1, None, 1, True),
        (1, 2, 1, False),  # of another size
        (1, 3, 2, False),  # of the round before
        (2, 3, 1, False),  # too few of the newest round
    ],
)
def test_a_job_trains_well_after_enough_steps_of_a_later_round(
    first: int, workers: int | None, after: int, well: bool
) -> None:
    steps = [Step(number / 10, 1 if number < first else 2, number, 3) for number in range(WELL + 1)]
    assert trains_well(steps, workers, after) is well


def test_the_longest_gap_is_between_two_steps_of_anybody() -> None:
    steps = [Step(at, 1, number, 3) for number, at in enumerate((0.0, 0.1, 2.0, 2.1))]
    assert longest(steps) == pytest.approx(1.9)
    assert longest(steps[:1]) == 0
