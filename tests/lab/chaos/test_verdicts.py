"""What the chaos benchmarks call wrong, and the figures that they publish."""

from __future__ import annotations

import math
from typing import Any

import pytest

from elasticjob.cli.story.processes import Process
from elasticjob.cli.story.seen import Condition, Pod, Seen
from elasticjob.cli.story.steps import Step
from lab.jobs.bare import Blow, in_memory
from lab.jobs.digits import Wanted, account_of
from lab.truths.model import differs, one_loss, sharded_alone
from lab.truths.pods import twins
from lab.truths.records import missing, records
from lab.truths.saves import newest_save
from lab.truths.training import adds_up, are_contiguous, is_complete, left

COMPLETE = Seen(conditions=(Condition("Complete", True, "Succeeded", "all workers ended well"),))
STEPS = [Step(at=float(n), round=1, step=n, world=2) for n in range(1, 5)]


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
    wrong = newest_save([life, *2 * [{"parameters": []}]], [blow], 2)
    assert [each[: len(sentence)] for each in wrong] == ([sentence] if sentence else [])
    assert newest_save([{"parameters": []}], [], 2) == ["1 workers ended with parameters"]


def test_two_losses_of_a_step_and_other_parameters_are_told() -> None:
    assert one_loss([{"step": 1, "loss": 1.0}, {"step": 2, "loss": 1.0}]) == []
    assert one_loss([{"step": 1, "loss": loss} for loss in (1.0, 2.0)])[0].startswith("step 1 has several")
    end = {"parameters": sharded_alone(3), "steps": 3}
    assert differs([end], lambda line: sharded_alone(line["steps"])) == []
    assert differs([end], lambda line: sharded_alone(2))[0].startswith("parameters differ by")
    assert differs([{**end, "parameters": [math.nan]}], lambda line: [0.0]) != []
    assert differs([], lambda line: []) == ["no worker ended with parameters"]


def test_a_record_that_is_missing_or_came_twice_and_a_step_that_was_not_done_are_told() -> None:
    """Step 2 is made again in round 2, which has the other records."""
    lines = [
        {"step": step, "epoch": 0, "round": round, "records": [record]}
        for step, round, record in ((1, 1, 0), (2, 1, 0), (2, 2, 1))
    ]
    done = [{"done": 1, "round": 1}, {"done": 2, "round": 1}, {"done": 2, "round": 2}]
    assert records([*lines, *done], {2}) == missing(done, 2) == []
    assert records([*lines, *done[:2]], {2}) == ["epoch 0: 1 records came twice, 1 never"]
    assert missing(done, 3) == ["steps [3] were never done (1 in all)"]


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
    assert bool(twins((each.place, each.name) for each in pods if each.alive)) is are_twins


def test_verdict_names_each_broken_promise() -> None:
    process = Process(42, 1, 42, {"POD_NAME": "a-0"}, "python train.py")
    assert is_complete(COMPLETE) == are_contiguous(STEPS) == left([]) == []
    assert are_contiguous([]) == ["no step was counted"]
    assert are_contiguous([STEPS[0], STEPS[2]]) == ["round 1 counted step 3, expected 2"]
    assert is_complete(Seen(phase="Running")) == ["the job is not Complete within 120 s: Running: "]
    assert left([process]) == ["process 42 of pod a-0 is left: python train.py"]


@pytest.mark.parametrize(
    ("changes", "until", "expected"),
    [([(10.0, 2), (12.0, 3), (14.0, 1)], 15.0, 4 + 6 + 1), ([(10.0, 2), (12.0, 0), (20.0, 2)], 21.0, 4 + 2)],
)
def test_wanted_workers_are_counted_over_time(
    changes: list[tuple[float, int]], until: float, expected: float
) -> None:
    assert Wanted(changes).seconds(until) == expected


def test_an_account_is_off_where_seconds_are_missing() -> None:
    account = account_of({"productiveSeconds": 90.0, "badputSeconds": {"init": 9.0, "data": 0.0}})
    assert account == {"productive": 90.0, "init": 9.0}
    assert adds_up(sum(account.values()), 99.5) == []
    assert adds_up(sum(account.values()), 101.0) == ["the account is off by -1.98% of 101.0 s"]
