"""How fast a job is expected to train with other numbers of workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.brain.fulfilment.planners import PLANNERS, Row, Share
from elasticjob.brain.fulfilment.speeds import per_size, with_speeds
from elasticjob.brain.fulfilment.state import Cluster, Job, Machine
from lab.build.jobs import at, job

NOW = datetime(2026, 1, 2, tzinfo=UTC)
TRAINS = Job("ml/digits", 1, 4, 2, {"cpu": 1000}, ("m", "m"), NOW)


@pytest.mark.parametrize(
    ("measured", "most", "expected"),
    [
        ({}, 4, {}),
        ({1: 100.0}, 8, {1: 100, 2: 200}),  # perfect until it is measured, and no more than twice
        ({3: 90.0}, 4, {1: 30, 2: 60, 3: 90, 4: 120}),
        ({1: 100.0, 2: 100.0}, 8, {1: 100, 2: 100, 3: 100, 4: 100}),
        ({1: 100.0, 2: 160.0}, 3, {1: 100, 2: 160, 3: 200}),  # 1/160 = 0.01/2 + c1/2: c1 = 0.0025
        ({1: 100.0, 4: 400.0}, 2, {1: 100, 2: 200}),
        ({1: 0.0, 2: -1.0}, 2, {}),
        ({1: inf, 2: 1e300, 3: 1e-320, 10**9: 5.0}, 2, {}),  # of an older version's database
        ({1: 100.0, 2: inf}, 2, {1: 100, 2: 200}),
    ],
)
def test_speeds(measured: dict[int, float], most: int, expected: dict[int, float]) -> None:
    assert per_size(measured, most) == pytest.approx(expected)


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1e6), min_size=1, max_size=8), st.integers(1, 200))
def test_what_was_measured_counts_and_the_rest_is_positive(measured: dict[int, float], most: int) -> None:
    found = per_size(measured, most)
    assert list(found) == list(range(1, min(most, 2 * max(measured)) + 1))
    assert all(speed > 0 for speed in found.values())
    assert {n: found[n] for n in measured if n <= most} == {n: v for n, v in measured.items() if n <= most}


@pytest.mark.parametrize(
    ("status", "done", "left"),
    [
        ({}, 0.0, None),
        ({"startTime": at(NOW - timedelta(seconds=60))}, 60 * 50.0, None),
        ({"training": {"eta": at(NOW + timedelta(seconds=30))}}, 0.0, 30 * 50.0),
        ({"training": {"eta": at(NOW - timedelta(seconds=30))}}, 0.0, None),
        ({"startTime": at(NOW + timedelta(minutes=10))}, 0.0, None),  # by another clock
        ({"training": {"eta": at(NOW), "step": 30, "progress": 0.25, "stepsPerSecond": 3}}, 0.0, 30 * 50.0),
        ({"training": {"step": 2**53, "progress": 1e-300, "stepsPerSecond": 1e-300}}, 0.0, 1e9 * 50.0),
    ],
)
def test_work_is_done_and_left(status: dict[str, Any], done: float, left: float | None) -> None:
    found = with_speeds(TRAINS, {2: 50.0}, job(status=status), NOW)
    assert (found.done, found.left, found.speeds[4]) == (done, left, 100.0)


@pytest.mark.parametrize("row", PLANNERS.values(), ids=lambda row: row.name)
def test_every_planner_gives_a_new_job_its_least_and_says_why(row: Row) -> None:
    room = Machine("m", {"cpu": 4000}, {"cpu": 2000}, {"cpu": 2000})
    new = Job("ml/new", 1, 4, 0, {"cpu": 1000}, (), NOW)
    plan = row.plan(Cluster((room,)), [with_speeds(new, {}, job(), NOW)], timedelta(0), NOW)
    (delta,) = plan.deltas
    assert (delta.before, delta.after >= 1, "ml/new" in delta.reason) == (0, True, True)


@pytest.mark.parametrize("row", PLANNERS.values(), ids=lambda row: row.name)
def test_while_all_machines_are_silent_nothing_changes(row: Row) -> None:
    plan = row.plan(Cluster(()), [with_speeds(TRAINS, {1: 10.0, 2: 20.0}, job(), NOW)], timedelta(0), NOW)
    assert plan.deltas == ()


WILD = st.one_of(st.floats(), st.sampled_from([1e-9, 1e15, -1.0]))
SAID = st.fixed_dictionaries(
    {
        "step": st.integers(0, 2**53),
        "progress": st.floats(-1, 2),
        "stepsPerSecond": st.floats(allow_nan=False, allow_infinity=False),
        "eta": st.sampled_from([at(NOW), "9999-12-31T23:59:59Z"]),
    }
)


@pytest.mark.parametrize("row", PLANNERS.values(), ids=lambda row: row.name)
@settings(max_examples=50)
@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 2**31), WILD, max_size=3), SAID), max_size=3))
def test_whatever_masters_say_there_is_a_plan(
    row: Row, told: list[tuple[dict[int, float], dict[str, Any]]]
) -> None:
    room = Machine("m", {"cpu": 8000}, {"cpu": 4000}, {"cpu": 4000})
    known = [
        with_speeds(replace(TRAINS, key=f"ml/{n}"), speeds, job(status={"training": status}), NOW)
        for n, (speeds, status) in enumerate(told)
    ]
    plan = row.plan(Cluster((room,)), known, timedelta(0), NOW)
    assert all(1 <= delta.after <= 4 for delta in plan.deltas)


def test_the_goodput_planner_gives_room_to_who_gains_by_it() -> None:
    room = Machine("m", {"cpu": 8000}, {"cpu": 4000}, {"cpu": 4000})
    flat = Job("ml/flat", 1, 4, 2, {"cpu": 1000}, ("m", "m"), NOW)
    seen = job()
    jobs = [
        with_speeds(TRAINS, {1: 10.0, 2: 20.0}, seen, NOW),
        with_speeds(flat, {1: 10.0, 2: 10.1}, seen, NOW),
    ]
    plan = PLANNERS[Share.GOODPUT].plan(Cluster((room,)), jobs, timedelta(0), NOW)
    assert [(delta.job, delta.after) for delta in plan.deltas] == [("ml/digits", 4)]
    assert "times as fast as now" in plan.deltas[0].reason
