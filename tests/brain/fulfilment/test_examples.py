"""Plans that can be followed by hand: machines m0, m1, … of some cores, instances of one core."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

import pytest

from elasticjob.brain.fulfilment.planner import plan
from elasticjob.brain.fulfilment.state import Demand, Job, Options, Plan
from tests.kit.planning.worlds import LOST, NOW, World, amount, job, world

EARLIER = NOW - timedelta(minutes=5)
PACKED = {"m0": amount(4, 9, gpu=4), "m1": amount(8, 9)}
NINE_TENTHS = Options({"cpu": Fraction(9, 10)}, settle=timedelta(0))


@dataclass(frozen=True)
class Row:
    given: World
    sizes: dict[str, int] = field(default_factory=dict)
    """After the plan, of the jobs that change."""
    waiting: dict[str, int] = field(default_factory=dict)
    says: str = ""
    """In one of the reasons."""


def cores(*each: int) -> dict[str, dict[str, int]]:
    return {f"m{i}": dict(amount(each, 99)) for i, each in enumerate(each)}


def gpus(key: str, least: int, most: int, on: str = "") -> Job:
    return job(key, least, most, on, amount=amount(1, 0, gpu=1))


def demand(cpu: int, priority: int = 0) -> Demand:
    return Demand("default/nginx", amount(cpu, 0), NOW, priority=priority)


ROWS = {
    "the least fulfilled grows first": Row(
        world(cores(8), job("a", 1, 5, "m0 m0 m0"), job("b", 1, 5, "m0 m0")),
        {"a": 4, "b": 4},
        says="b grows by 2 instances, least fulfilled first, to a score of 0.75",
    ),
    "the score counts, not the number": Row(
        world(cores(7), job("a", 1, 3, "m0 m0"), job("b", 1, 9, "m0 m0 m0")), {"b": 5}
    ),
    "a fulfilled job stays": Row(world(cores(9), job("a", 1, 2, "m0 m0"))),
    "of equals the smaller instance goes first": Row(
        world(cores(5), job("a", 1, 2, "m0", cpu=2), job("b", 1, 2, "m0")), {"b": 2}
    ),
    "the most fulfilled gives way": Row(
        world(cores(8), job("a", 1, 5, "m0 m0 m0"), job("b", 1, 5, "m0 m0 m0 m0 m0"), job("c", 1, 5, "-")),
        {"b": 4},
        says="b gives up 1 instance for c, which has no place for 1 of its minimum of 1",
    ),
    "a minimum is given all or nothing": Row(
        world(cores(4), job("a", 2, 4, "m0 m0 m0 m0"), job("b", 3, 3, "- - -")),
        waiting={"b": 3},
        says="with all that jobs of priority 0 or lower hold above their minimum, have room for 2",
    ),
    "a gang waits, and its pods that fit are bound": Row(
        world(cores(4), job("a", 2, 2, "m0 m0"), job("b", 3, 3, "- - -")), waiting={"b": 1}
    ),
    "no job falls below its minimum": Row(
        world(cores(2), job("a", 2, 4, "m0 m0"), job("b", 1, 1, "-")), waiting={"b": 1}
    ),
    "the lower priority gives way first": Row(
        world(
            cores(6),
            job("a", 1, 9, "m0 m0 m0", priority=5),
            job("b", 1, 9, "m0 m0 m0"),
            job("c", 1, 1, "-", priority=9),
        ),
        {"b": 2},
    ),
    "a higher priority does not give way": Row(
        world(cores(3), job("a", 1, 3, "m0 m0 m0", priority=5), job("b", 1, 1, "-")), waiting={"b": 1}
    ),
    "a higher priority grows first": Row(
        world(cores(4), job("a", 1, 4, "m0"), job("b", 1, 4, "m0 m0", priority=5)), {"b": 3}
    ),
    "the earlier of two minima is met": Row(
        world(cores(2), job("a", 1, 1, "-"), job("b", 2, 2, "- -", submitted=EARLIER)), waiting={"a": 1}
    ),
    "what does not help is not taken": Row(
        world(cores(2, 2), job("a", 0, 2, "m1 m1"), job("b", 0, 2, "m0 m0"), job("c", 1, 1, "-", cpu=2)),
        {"b": 0},
    ),
    "only a machine that the minimum may use helps": Row(
        world(
            cores(2, 2),
            job("a", 0, 2, "m0 m0"),
            job("b", 1, 2, "m1 m1"),
            job("c", 1, 1, "-", permitted=frozenset({"m1"})),
        ),
        {"b": 1},
    ),
    "a size between two steps is rounded down, whichever rank has a place": Row(
        world(cores(1), job("a", 3, 7, f"- - - {LOST}", cpu=2, step=3)),
        {"a": 3},
        waiting={"a": 3},
        says="must have 3 to 6 instances in steps of 3, not 4",
    ),
    "a pending pod of others gets room": Row(
        world(cores(4), job("a", 1, 4, "m0 m0 m0 m0"), demands=[demand(2, priority=100)]),
        {"a": 2},
        says="gives up 2 instances for the pending pod default/nginx of priority 100, which fits no machine",
    ),
    "a pending pod that fits keeps its place from growth": Row(
        world(cores(4), job("a", 1, 4, "m0"), demands=[demand(2)]), {"a": 2}
    ),
    "room that terminating pods still hold is enough for a minimum": Row(
        world(cores(4), job("a", 1, 3, "m0 m0 m0"), job("b", 1, 1, "-"), leaving={"m0": amount(1, 0)})
    ),
    "room of terminating pods is not for growth": Row(
        world(cores(4), job("a", 1, 4, "m0"), leaving={"m0": amount(2, 0)}), {"a": 2}
    ),
    "devices are used to the last one": Row(
        world({"m0": amount(9, 9, gpu=4)}, gpus("a", 1, 8, "m0"), options=NINE_TENTHS), {"a": 4}
    ),
    "a job without devices goes where there are none": Row(
        world(PACKED, gpus("a", 1, 9, "m0"), job("b", 1, 7, "m1")), {"a": 4, "b": 7}
    ),
    "a minimum with devices takes none from those without": Row(
        world(
            {"m0": amount(4, 9, gpu=2)},
            gpus("a", 0, 2, "m0 m0"),
            job("b", 0, 2, "m0 m0"),
            gpus("c", 1, 1, "-"),
        ),
        {"a": 1},
    ),
    "growth keeps the limit": Row(world(cores(10), job("a", 1, 20, "m0"), options=NINE_TENTHS), {"a": 9}),
    "above a limit the most fulfilled shrinks": Row(
        world(
            {"m0": amount(10, 9, gpu=9)},
            job("a", 1, 20, " ".join(["m0"] * 6)),
            job("b", 1, 5, "m0 m0 m0 m0"),
            options=NINE_TENTHS,
        ),
        {"b": 3},
        says="b gives up 1 instance because 10 cpu would be used, with a limit of 9 cpu of 10 cpu",
    ),
    "a size outside its range goes into it": Row(
        world(cores(9), job("a", 1, 2, "m0 m0 m0"), job("b", 2, 3, "")),
        {"a": 2, "b": 3},
        says="a must have 1 to 2 instances, not 3",
    ),
    "sizes are multiples of the step": Row(
        world(cores(9), job("a", 2, 7, "m0 m0 m0", step=2)),
        {"a": 2},
        says="a must have 2 to 6 instances in steps of 2, not 3",
    ),
    "a step grows whole or not at all": Row(world(cores(5), job("a", 2, 8, "m0 m0", step=2)), {"a": 4}),
    "a range without a multiple of the step stays": Row(world(cores(5), job("a", 3, 3, "m0 m0", step=2))),
    "instances without a place are withdrawn": Row(
        world(cores(3), job("a", 1, 9, "m0 m0 m0 - -")),
        {"a": 3},
        says="a withdraws 2 instances that fit no machine",
    ),
    "a replacement is not withdrawn": Row(world(cores(3), job("a", 1, 9, "m0 - m0 m0"))),
    "instances that wait for terminating pods are not withdrawn": Row(
        world(cores(3), job("a", 1, 9, "m0 m0 -"), leaving={"m0": amount(1, 0)})
    ),
    "instances on a lost machine count, and need no room": Row(
        world(cores(1), job("a", 2, 4, f"{LOST} {LOST}")), {"a": 3}
    ),
    "a job that may not grow stays": Row(world(cores(9), job("a", 1, 9, "m0", stays="a pod is terminating"))),
    "a job grows into what its queue has": Row(world(cores(9), job("a", 1, 9, "m0", quota=2)), {"a": 3}),
    "where that is nothing, others grow": Row(
        world(cores(9), job("a", 1, 9, "m0", quota=0), job("b", 1, 5, "m0 m0 m0")), {"b": 5}
    ),
    "growth waits for the settle time": Row(
        world(cores(9), job("a", 1, 9, "m0", changed=NOW - timedelta(seconds=59)), options=Options())
    ),
    "after the settle time it grows": Row(
        world(cores(9), job("a", 1, 3, "m0", changed=NOW - timedelta(seconds=60)), options=Options()),
        {"a": 3},
    ),
    "each withdrawn growth doubles the settle time": Row(
        world(
            cores(9),
            job("a", 1, 9, "m0", changed=NOW - timedelta(seconds=239), withdrawn=2),
            options=Options(),
        )
    ),
    "shrinking does not wait for the settle time": Row(
        world(
            cores(2),
            job("a", 1, 2, "m0 m0", changed=NOW, stays="x"),
            job("b", 1, 1, "-"),
            options=Options({}),
        ),
        {"a": 1},
    ),
    "equal names in two namespaces are two jobs": Row(
        world(cores(4), job("a/x", 1, 2, "m0"), job("b/x", 1, 2, "m0")), {"a/x": 2, "b/x": 2}
    ),
    "running jobs are not rebalanced": Row(
        world(cores(6), job("a", 1, 9, "m0 m0 m0 m0 m0"), job("b", 1, 9, "m0"))
    ),
    "as an option they are, until equals": Row(
        world(
            cores(6),
            job("a", 1, 9, "m0 m0 m0 m0 m0"),
            job("b", 1, 9, "m0"),
            options=Options({}, settle=timedelta(0), rebalance=True),
        ),
        {"a": 3, "b": 3},
        says="a gives up 2 instances for b, which had a score of 0.00, while its own was 0.50",
    ),
    "an empty cluster has an empty plan": Row(world({})),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_plan(row: Row) -> None:
    found = planned(row.given)
    assert {each.job: each.after for each in found.deltas} == row.sizes
    assert {each.job: each.missing for each in found.waiting} == row.waiting
    reasons = [each.reason for each in found.deltas] + [each.reason for each in found.waiting]
    assert any(row.says in reason for reason in reasons) or not row.says, reasons


def planned(given: World) -> Plan:
    return plan(given.cluster, given.jobs, given.options, NOW)
