"""The rules of the local optimizer, one row each."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from elasticjob.api.sizes.change import Change
from elasticjob.api.sizes.facts import Mode, Stage
from elasticjob.api.sizes.role import Role
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.rules import cores, growth, memory, pending, servers, start
from lab.build.sizing import NOW, asked, needed, samples, use, waiting

ELASTIC = {"worker": Role(least=1, most=16)}
PAIRS = {"worker": Role(least=2, most=16, unit=2)}
SERVERS = {"worker": Role(least=1, most=16), "ps": Role(least=1, most=8)}
ROOM = {"worker": 8}


def told(plan: Change) -> dict[str, Any]:
    """Return a plan in short: counts and resources by role, resources by node."""
    groups = {r: (g.count, *g.resource.manifest().items()) for r, g in plan.groups.items()}
    return groups | {name: tuple(resource.manifest().items()) for name, resource in plan.nodes.items()}


START = {
    "a fifth of the limits": (
        asked(ELASTIC, limits={"cpu": "50", "memory": "20Gi"}),
        {"worker": (1, ("cpu", "10"), ("memory", "4Gi"))},
    ),
    "at most 16 cores and 8 GiB": (
        asked(ELASTIC, limits={"cpu": "640", "memory": "1Ti"}),
        {"worker": (1, ("cpu", "16"), ("memory", "8Gi"))},
    ),
    "no limits: the default": (asked(ELASTIC), {"worker": (1, ("cpu", "1"), ("memory", "8000Mi"))}),
    "what the template says stays": (
        asked({"worker": Role(resource={"cpu": "2"})}),
        {"worker": (1, ("memory", "8000Mi"))},
    ),
    "no more than a machine has left": (
        asked(ELASTIC, limits={"cpu": "50"}, machine={"cpu": "3", "memory": "2Gi"}),
        {"worker": (1, ("cpu", "3"), ("memory", "2Gi"))},
    ),
    "its share, where the others leave less": (
        asked({"worker": Role(least=4), "chief": Role(count=1, resource={"cpu": "8"})}, limits={"cpu": "10"}),
        {"worker": (4, ("cpu", "500m"), ("memory", "8000Mi"))},
    ),
    "a multiple of the unit": (asked(PAIRS), {"worker": (2, ("cpu", "1"), ("memory", "8000Mi"))}),
    "manual: only a number": (asked(ELASTIC, mode=Mode.MANUAL), {"worker": (1,)}),
    "an evaluator gets no less than a worker": (
        asked({"worker": Role(count=1, resource={"cpu": "6"}), "evaluator": Role()}, limits={"cpu": "7"}),
        {"evaluator": (1, ("cpu", "6"), ("memory", "8000Mi"))},
    ),
    "what cannot fit is not started": (
        asked({"worker": Role(least=100)}, limits={"cpu": "1"}),
        "100 of worker do not fit",
    ),
    "nothing to decide": (asked({"worker": Role(count=3)}), "every role has a size"),
}


def grown(*speeds: tuple[int, float], room: int = 8, **more: Any) -> Facts:
    """Return a question about an elastic job that had these speeds, the last one with the workers of now."""
    sizes = {"worker": speeds[-1][0]}
    return asked(ELASTIC, sizes=sizes, samples=samples(*speeds), room={"worker": room}, **more)


GROWTH = {
    "twice as many": (grown((2, 20)), {"worker": (4,)}),
    "no more than the room": (grown((4, 40), room=1), {"worker": (5,)}),
    "no room": (grown((4, 40), room=0), "the cluster has room for 0 more"),
    "room not known": (asked(ELASTIC, sizes={"worker": 4}, samples=samples((4, 40))), "not known yet"),
    "the maximum": (grown((16, 40)), "maxReplicas is 16"),
    "by the unit": (
        asked(PAIRS, sizes={"worker": 4}, samples=samples((4, 40)), room={"worker": 3}),
        {"worker": (6,)},
    ),
    "what paid stays": (grown((2, 20), (4, 36), room=4), {"worker": (8,)}),
    "what did not pay goes": (grown((2, 20), (4, 21)), {"worker": (2,)}),
    "judged once": (grown((2, 20), (4, 21), judged=4), {"worker": (8,)}),
    "half-way to what did not pay": (grown((8, 41), (4, 40)), {"worker": (6,)}),
    "next to what did not pay": (grown((3, 30), (5, 40.2), (4, 40)), "5 did not pay"),
    "fewer, if the start is the smallest known": (grown((5, 40.2), (4, 40)), {"worker": (2,)}),
    "what paid before": (grown((6, 60), (4, 40)), {"worker": (6,)}),
    "not settled": (grown((2, 20), settled=False), "not all nodes train long enough"),
    "no machine for what was added": (
        asked(ELASTIC, sizes={"worker": 4}, waiting=(waiting("digits-worker-3", "worker", 300),)),
        {"worker": (3,)},
    ),
    "not in a row": (grown((2, 20), held=NOW + timedelta(minutes=5)), "none is added before 12:05:00"),
    "the user's number": (
        asked({"worker": Role(count=2)}, samples=samples((2, 20)), room=ROOM),
        "the number of workers is the user's",
    ),
    "chiefs train beside": (
        asked(
            {"worker": Role(least=1, most=8), "chief": Role(count=1)},
            sizes={"worker": 3, "chief": 1},
            samples=samples((4, 40)),
            room=ROOM,
        ),
        {"worker": (7,)},
    ),
}


def full(*gib: float, **more: Any) -> Facts:
    """Return a question about workers of 8 GiB that had this curve."""
    resources = {"worker": {"memory": "8Gi", "cpu": "4"}}
    return asked(ELASTIC, resources=resources, demand={"worker": needed(*gib, **more)})


MEMORY = {
    "rises to the limit within the horizon": (
        full(*(6 + n / 10 for n in range(12))),
        {"worker": (None, ("memory", "15427Mi"))},
    ),
    "rises slowly": (full(*(3 + n / 90 for n in range(12))), {}),
    "a saw-tooth does not rise": (full(*[5, 6, 7] * 5), {}),
    "one jump is no trend": (full(*[3] * 11, 7.8), {}),
    "too few points": (full(3, 5, 7.5), {}),
    "never used": (full(3, 3, risen=60), {"worker": (None, ("memory", "3533Mi"))}),
    "never used, of a small node": (full(0.5, 0.5, risen=60), {"worker": (None, ("memory", "768Mi"))}),
    "nobody has measured it": (full(0, 0, risen=60), {}),
    "not yet": (full(3, 3, risen=20), {}),
    "not worth it": (full(6.8, risen=60), {}),
    "a size that is not known": (asked(ELASTIC, demand={"worker": needed(3, 3, risen=60)}), {}),
}


def cored(cpu: str, **demand: Any) -> Facts:
    """Return a question about workers of so many cores."""
    return asked(ELASTIC, resources={"worker": {"cpu": cpu}}, demand={"worker": needed(**demand)})


CORES = {
    "many are left": (cored("13", cores=4, sated=True), {"worker": (None, ("cpu", "4"))}),
    "few are left": (cored("4500m", cores=4, sated=True), {}),
    "all are used": (cored("1", cores=0.99), {"worker": (None, ("cpu", "2"))}),
    "more were not used before": (cored("4", cores=4, sated=True), {}),
    "not known": (asked(ELASTIC, demand={"worker": needed(cores=4, sated=True)}), {}),
}
late = partial(waiting, "digits-worker-0", "worker", 1000)
PENDING = {
    "half of both": (late(cpu="16", memory="32Gi"), {"digits-worker-0": (("cpu", "8"), ("memory", "16Gi"))}),
    "only what stays above the floor": (
        late(cpu="8", memory="32Gi"),
        {"digits-worker-0": (("memory", "16Gi"),)},
    ),
    "nothing to take": (late(cpu="8", memory="12Gi"), {}),
    "not yet": (waiting("digits-worker-0", "worker", 800, cpu="16", memory="32Gi"), {}),
    "never with devices": (late(cpu="16", **{"nvidia.com/gpu": "1"}), {}),
}
BUSY = (use("worker", cpu=8, of=8, memory=3), use("ps", cpu=3.4, of=13, memory=4))
SIZES = {"worker": {"cpu": "8"}, "ps": {"cpu": "13"}}
HOT = (
    *(use("worker", n, cpu=8, of=8) for n in range(4)),
    use("ps", 0, cpu=13.6, of=14),
    use("ps", 1, cpu=3.4, of=14),
)
SERVER = {
    "all in proportion, by at most four workers": (
        asked(SERVERS, sizes={"worker": 1, "ps": 1}, resources=SIZES, limits={"cpu": "96"},
              samples=samples((1, 4), uses=BUSY), stage=Stage.PS_INITIAL),
        {"worker": (5,), "ps": (2, ("cpu", "10"))}),
    "without a limit, the room": (
        asked(SERVERS, sizes={"worker": 1, "ps": 1}, resources=SIZES, room={"worker": 2},
              samples=samples((1, 4), uses=BUSY)), {"worker": (3,)}),
    "the hot one gets its own, and no worker comes": (
        asked(SERVERS, sizes={"worker": 4, "ps": 2}, resources={"worker": {"cpu": "8"}, "ps": {"cpu": "14"}},
              limits={"cpu": "200"}, samples=samples((4, 16), uses=HOT), servers_due=False),
        {"digits-ps-0": (("cpu", "16"),), "digits-ps-1": (("cpu", "4"),)}),
    "what was added brought nothing": (
        asked(SERVERS, sizes={"worker": 4, "ps": 1}, resources={"worker": {"cpu": "8"}, "ps": {"cpu": "4"}},
              limits={"cpu": "200"}, samples=samples((2, 16), (4, 16.5), uses=BUSY), servers_due=False),
        "nothing has to change"),
    "the user's servers": (
        asked({"worker": Role(least=1, most=16), "ps": Role(count=1, resource={"cpu": "4"})},
              sizes={"worker": 1, "ps": 1}, limits={"cpu": "96"}, resources={"worker": {"cpu": "8"}},
              samples=samples((1, 4), uses=BUSY)), {"worker": (5,), "ps": (None, ("cpu", "20"))}),
    "too few records": (
        asked(SERVERS, sizes={"worker": 1, "ps": 1}, samples=samples((1, 4), each=2, uses=BUSY)), "too few"),
    "no use known": (
        asked(SERVERS, sizes={"worker": 1, "ps": 1},
              samples=samples((1, 4), uses=(use("ps"), use("worker")))), "is not known"),
}  # fmt: skip


def check(change: Change | None, expected: object) -> None:
    plan = change or Change(reason=change.reason if change is not None else "")
    if isinstance(expected, str):
        assert not plan
        assert expected in plan.reason
    else:
        assert told(plan) == expected
        assert bool(plan) == bool(expected)
        assert plan.reason or not plan


RULES: dict[Any, dict[str, Any]] = {
    start: START,
    growth: GROWTH,
    memory: MEMORY,
    cores: CORES,
    servers: SERVER,
}


@pytest.mark.parametrize(
    ("rule", "facts", "expected"),
    [pytest.param(rule, *row, id=case) for rule, rows in RULES.items() for case, row in rows.items()],
)
def test_rule(rule: Any, facts: Facts, expected: object) -> None:
    check(rule.propose(facts), expected)


@pytest.mark.parametrize(("node", "expected"), PENDING.values(), ids=PENDING)
def test_pending(node: Any, expected: object) -> None:
    check(pending.propose(asked(ELASTIC, waiting=(node,))), expected)


@pytest.mark.parametrize(
    ("left", "minutes", "expected"), [("8", 40, True), ("4", 40, False), ("8", 20, False)]
)
def test_a_node_gets_back_what_it_gave_up(left: str, minutes: int, expected: bool) -> None:
    facts = asked(
        ELASTIC,
        resources={"worker": {"cpu": "16"}},
        nodes={"digits-worker-0": {"cpu": "8"}},
        machine={"cpu": left},
        cuts={"digits-worker-0": NOW - timedelta(minutes=minutes)},
    )
    check(pending.propose(facts), {"digits-worker-0": (("cpu", "16"),)} if expected else {})
