"""The pure parts of the chaos benchmark: whom it strikes, and what it calls wrong."""

from __future__ import annotations

import pytest

from benchmarks.chaos.control_plane import SPAN, Victim, strikes, twins, verdict
from elasticjob.cli.story.processes import Process
from elasticjob.cli.story.seen import Condition, Pod, Seen
from elasticjob.cli.story.steps import Step

COMPLETE = Seen(conditions=(Condition("Complete", True, "Succeeded", "all workers ended well"),))
STEPS = [Step(at=float(n), round=1, step=n, world=2) for n in range(1, 5)]


def pod(name: str, index: int, phase: str = "Running", *, leaving: bool = False) -> Pod:
    return Pod(name, name, "worker", phase, leaving, index)


def test_same_seed_strikes_the_same_and_every_victim_has_its_turn() -> None:
    assert [strikes(7, number) for number in range(8)] == [strikes(7, number) for number in range(8)]
    assert strikes(7, 1) != strikes(8, 1)
    for number, victim in enumerate([*Victim, *Victim]):
        assert victim in {strike.victim for strike in strikes(3, number)}


@pytest.mark.parametrize("number", range(20))
def test_strikes_are_in_order_and_within_their_span(number: int) -> None:
    planned = strikes(1, number)
    assert 1 <= len(planned) <= 3
    timestamps = [strike.after for strike in planned]
    assert timestamps == sorted(timestamps)
    assert all(0 <= moment <= SPAN for moment in timestamps)


@pytest.mark.parametrize(
    ("pods", "messages"),
    [
        ((), ()),
        ((pod("a-0", 0), pod("a-1", 1)), ()),
        ((pod("a-0", 0, "Failed"), pod("a-0-1", 0)), ()),
        (
            (pod("a-0", 0), pod("a-0-1", 0, "Pending")),
            ("worker-0 was held by 2 live pods at once: a-0, a-0-1",),
        ),
        (
            (pod("a-0", 0, leaving=True), pod("a-0-1", 0)),
            ("worker-0 was held by 2 live pods at once: a-0, a-0-1",),
        ),
    ],
)
def test_two_live_pods_of_one_place_are_wrong(pods: tuple[Pod, ...], messages: tuple[str, ...]) -> None:
    assert twins(pods) == messages


def test_round_that_kept_every_promise_has_nothing_wrong() -> None:
    assert verdict(COMPLETE, STEPS, ()) == ()


def test_verdict_names_each_broken_promise() -> None:
    left = Process(42, 1, 42, {"POD_NAME": "a-0"}, "python train.py")
    assert verdict(Seen(phase="Running"), [STEPS[0], STEPS[2]], [left]) == (
        "round 1 counted step 3, expected 2",
        "the job is not Complete within 120 s: Running: ",
        "process 42 of pod a-0 is left: python train.py",
    )
    assert verdict(COMPLETE, [], ()) == ("no step was counted",)
