"""What the chaos benchmarks call wrong, and the figures that they publish."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from elasticjob.cli.story.processes import Process
from elasticjob.cli.story.seen import Condition, Pod, Seen
from elasticjob.cli.story.steps import Step
from lab.chaos.checkpoints import Blow, in_memory, problems, trained_alone
from lab.chaos.control_plane import twins, verdict
from lab.chaos.goodput import Outcome, Wanted, account_of

COMPLETE = Seen(conditions=(Condition("Complete", True, "Succeeded", "all workers ended well"),))
STEPS = [Step(at=float(n), round=1, step=n, world=2) for n in range(1, 5)]


@cache
def ends() -> list[dict[str, Any]]:
    """The last lines of two workers; made when a test needs them, since that takes torch."""
    return [{"parameters": trained_alone(3), "steps": 3, "at": 9.0} for _ in range(2)]


def begins(step: int, at: float, world: int = 2) -> dict[str, Any]:
    return {"begins": step, "at": at, "world": world, "rank": 0}


@pytest.mark.parametrize(
    ("blow", "life", "sentence"),
    [
        (Blow(1.0, "node", committed=4, in_memory=6), begins(4, 2.0), ""),
        (Blow(1.0, "node", committed=4, in_memory=6), begins(0, 2.0), "step 4 was committed"),
        (Blow(1.0, "worker", committed=4, in_memory=6), begins(4, 2.0), "step 6 was in memory"),
        (Blow(3.0, "worker", committed=4, in_memory=6), begins(0, 2.0), ""),
    ],
)
def test_lives_begin_no_earlier_than_what_was_saved(blow: Blow, life: dict[str, Any], sentence: str) -> None:
    found = problems([life, *ends()], [blow])
    assert [each[: len(sentence)] for each in found] == ([sentence] if sentence else [])


def test_two_losses_of_a_step_and_other_parameters_are_told() -> None:
    lines = [{"step": 1, "loss": loss, "at": loss} for loss in (1.0, 2.0)]
    found = problems([*lines, {**ends()[0], "steps": 2}], [])
    assert [sentence.partition(" ")[0] for sentence in found] == ["step", "1", "parameters"]


def test_the_copy_of_the_slowest_rank_counts() -> None:
    saved = [{"saved": step, "rank": rank, "at": 2.0} for step, rank in ((4, 0), (6, 0), (4, 1))]
    assert in_memory([begins(2, 1.5), *saved], since=1.0) == 4
    assert in_memory(saved, since=1.0) == 0


def pod(name: str, phase: str = "Running", *, leaving: bool = False) -> Pod:
    return Pod(name, name, "worker", phase, leaving, 0)


@pytest.mark.parametrize(
    ("pods", "are_twins"),
    [
        ((), False),
        ((pod("a-0", "Failed"), pod("a-0-1")), False),
        ((pod("a-0"), pod("a-0-1", "Pending")), True),
        ((pod("a-0", leaving=True), pod("a-0-1")), True),
    ],
)
def test_two_live_pods_of_one_place_are_wrong(pods: tuple[Pod, ...], are_twins: bool) -> None:
    assert bool(twins(pods)) is are_twins


def test_verdict_names_each_broken_promise() -> None:
    left = Process(42, 1, 42, {"POD_NAME": "a-0"}, "python train.py")
    assert verdict(COMPLETE, STEPS, ()) == ()
    assert verdict(COMPLETE, [], ()) == ("no step was counted",)
    assert verdict(Seen(phase="Running"), [STEPS[0], STEPS[2]], [left]) == (
        "round 1 counted step 3, expected 2",
        "the job is not Complete within 120 s: Running: ",
        "process 42 of pod a-0 is left: python train.py",
    )


@pytest.mark.parametrize(
    ("changes", "until", "expected"),
    [([(10.0, 2), (12.0, 3), (14.0, 1)], 15.0, 4 + 6 + 1), ([(10.0, 2), (12.0, 0), (20.0, 2)], 21.0, 4 + 2)],
)
def test_wanted_workers_are_counted_over_time(
    changes: list[tuple[float, int]], until: float, expected: float
) -> None:
    assert Wanted(changes).seconds(until) == expected


def test_an_outcome_is_as_far_off_as_its_account() -> None:
    account = account_of({"productiveSeconds": 90.0, "badputSeconds": {"init": 9.0, "data": 0.0}})
    assert account == {"productive": 90.0, "init": 9.0}
    assert Outcome(["worker killed"], 100.0, account).deviation == pytest.approx(-0.01)
