"""Each row of the table, with numbers that can be followed by hand; and what all rows keep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from elasticjob.api.resources import Resources
from elasticjob.api.rpc.brain import StageName
from elasticjob.brain.algorithms import ALGORITHMS
from elasticjob.brain.algorithms.algorithm import Algorithm, Group, Proposal
from elasticjob.brain.history import Event, History, Killed, Limits, Past, Role, Sample, Use
from elasticjob.brain.processor import Decision, decide

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
GIB = 1 << 30
PS_JOB = Limits({"ps": Role(most=15), "worker": Role(most=60)})
ALL_REDUCE = Limits({"worker": Role(most=16)})


def uses(role: str, *each: tuple[float, float], cores: float = 16.0, size: float = 32.0) -> tuple[Use, ...]:
    """Nodes of a role: the cores and GiB that each uses, and has."""
    return tuple(
        Use(f"j-{role}-{i}", role, cpu, int(gib * GIB), cores, int(size * GIB))
        for i, (cpu, gib) in enumerate(each)
    )


def samples(
    *nodes: Use, workers: int = 4, steps: float = 10.0, number: int = 3, first: int = 0
) -> tuple[Sample, ...]:
    return tuple(
        Sample(NOW + timedelta(minutes=first + i), workers, steps, steps * 32, nodes) for i in range(3)
    )


def past(*nodes: Use, completed: bool = True, killed: tuple[Killed, ...] = ()) -> Past:
    return Past("u0", "before", NOW, completed, samples(*nodes), killed)


RUNNING = History("u1", "j", StageName.RUNNING, counts={"ps": 4, "worker": 4}, settled=True)
CREATE = replace(RUNNING, stage=StageName.CREATE, counts={}, settled=False)
WORKERS = uses("worker", (3.0, 4.0), (3.5, 4.0), cores=4.0, size=5.0)
FOUR = uses("worker", *[(2.5, 4)] * 4, cores=4)
IDLE = samples(*uses("ps", (1.5, 5), (8, 5)), workers=32)
KILLED = (Killed("j-ps-0", "ps", NOW, 16 * GIB),)
ROOMY = {"worker": Resources.parse({"cpu": "4", "memory": "5Gi"})}
TWO = replace(RUNNING, samples=samples(*WORKERS, workers=2), counts={"worker": 2}, resources=ROOMY)


@dataclass(frozen=True)
class Row:
    event: Event
    history: History
    limits: Limits
    groups: dict[str, tuple[int | None, dict[str, str]]] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    says: str = ""


ROWS: dict[str, Row] = {
    "nothing is known": Row(
        Event.START,
        CREATE,
        PS_JOB,
        {"ps": (4, {"cpu": "12", "memory": "16Gi"}), "worker": (1, {"cpu": "12", "memory": "16Gi"})},
        says="no job like it is known",
    ),
    "servers from history": Row(  # ceil(6) + 4 cores; 1.5 · 22 / 10 -> 4; 1.2 · 10 GiB
        Event.START,
        replace(CREATE, past=(past(*uses("ps", (6, 10), (6, 10), (5, 8), (5, 8)), *WORKERS),)),
        PS_JOB,
        {"ps": (4, {"cpu": "10", "memory": "12Gi"}), "worker": (4, {"cpu": "4200m", "memory": "5735Mi"})},
        says="used 22 cores in all",
    ),
    "workers from history, and what killed some": Row(
        Event.START,
        replace(CREATE, past=(past(*WORKERS, killed=(Killed("j-worker-0", "worker", NOW, 10 * GIB),)),)),
        ALL_REDUCE,
        {"worker": (4, {"cpu": "4200m", "memory": "12Gi"})},
        says="1 completed jobs like it",
    ),
    "a job that failed teaches no sizes": Row(
        Event.START,
        replace(CREATE, past=(past(*WORKERS, completed=False),)),
        ALL_REDUCE,
        {"worker": (1, {"cpu": "12", "memory": "16Gi"})},
    ),
    "the first adjustment": Row(  # ceil(2) + 4 = 6 cores; 20/4 · 6 / 6 = 5; 1.2 · 5
        Event.START,
        replace(RUNNING, stage=StageName.PS_INITIAL, samples=samples(*uses("ps", (2, 5), (2, 5), (2, 4)))),
        Limits({"ps": Role(most=15), "worker": Role(count=4)}),
        {"ps": (5, {"cpu": "6", "memory": "6Gi"})},
        says="for 20 workers",
    ),
    "a hot server": Row(  # 32 / 4 = 8 times, but at most 32 / 14 = 2.29 times
        Event.TROUBLE,
        replace(RUNNING, samples=samples(*uses("ps", (14, 5), (4, 5)))),
        Limits({"ps": Role(), "worker": Role(count=4)}),
        nodes={"j-ps-0": {"cpu": "32"}},
        says="j-ps-0 uses 88% of its cores",
    ),
    "a crowded server": Row(
        Event.TROUBLE,
        replace(RUNNING, samples=samples(*uses("ps", (4, 30), (4, 5)))),
        Limits({"ps": Role(), "worker": Role(count=4)}),
        nodes={"j-ps-0": {"memory": "40Gi"}},
        says="more than 90% of its memory",
    ),
    "idle servers": Row(
        Event.IDLE,
        replace(RUNNING, samples=IDLE, remaining=timedelta(hours=2)),
        Limits({"ps": Role(), "worker": Role(count=32)}),
        nodes={"j-ps-0": {"cpu": "6", "memory": "6Gi"}},
        says="less than 40%",
    ),
    "idle servers of a job that is nearly over": Row(
        Event.IDLE,
        replace(RUNNING, samples=IDLE, remaining=timedelta(minutes=5)),
        Limits({"ps": Role(), "worker": Role(count=32)}),
        says="nothing to change",
    ),
    "a server was killed before any sample": Row(
        Event.OOM,
        replace(RUNNING, killed=KILLED),
        PS_JOB,
        {"ps": (None, {"memory": "32Gi"})},
        says="j-ps-0 was killed at 16 GiB",
    ),
    "a server was killed before it was measured": Row(
        Event.OOM,
        replace(RUNNING, killed=KILLED, samples=samples(*uses("ps", (0, 0)))),
        PS_JOB,
        {"ps": (None, {"memory": "32Gi"})},
        says="j-ps-0 was killed at 16 GiB",
    ),
    "servers differ": Row(
        Event.OOM,
        replace(RUNNING, killed=KILLED, samples=samples(*uses("ps", (2, 15), (2, 5)))),
        PS_JOB,
        {"ps": (None, {"memory": "30Gi"})},
        says="15 GiB at most",
    ),
    "servers are alike": Row(
        Event.OOM,
        replace(RUNNING, killed=KILLED, samples=samples(*uses("ps", (2, 15), (2, 14)))),
        PS_JOB,
        {"ps": (8, {})},
        says="the same on twice as many",
    ),
    "a worker was killed": Row(  # the larger of 1.2 · 8 GiB and 8 GiB + 4e9
        Event.OOM,
        replace(RUNNING, killed=(Killed("j-worker-1", "worker", NOW, 8 * GIB),)),
        PS_JOB,
        {"worker": (None, {"memory": "12007Mi"})},
        says="j-worker-1 was killed for memory at 8 GiB",
    ),
    "servers have room": Row(  # 0.8 / 0.25 · 4 = 13, at most 4 more
        Event.IDLE,
        replace(
            RUNNING, samples=samples(*uses("ps", (4, 5), (4, 5)), *uses("worker", *[(2.5, 4)] * 4, cores=4))
        ),
        PS_JOB,
        {"worker": (8, {"cpu": "4", "memory": "4916Mi"})},
        says="use 25% of the busiest server",
    ),
    "a server works at its limit": Row(
        Event.TROUBLE,
        replace(RUNNING, samples=samples(*uses("ps", (15.5, 5)), workers=12), counts={"ps": 1, "worker": 12}),
        Limits({"ps": Role(auto=False), "worker": Role()}),
        {"worker": (8, {})},
        says="a parameter server uses 97% of its cores",
    ),
    "workers may be tried": Row(
        Event.IDLE, TWO, ALL_REDUCE, {"worker": (4, {})}, says="there is room for more"
    ),
    "there is no room": Row(
        Event.IDLE, TWO, replace(ALL_REDUCE, room={"worker": 0}), says="nothing to change"
    ),
    "more workers did not pay": Row(  # 2 -> 4 workers: 10 -> 11 steps: each brought 10 % of what one brought
        Event.IDLE,
        replace(
            RUNNING,
            samples=samples(workers=2) + samples(workers=4, steps=11.0, first=9),
            counts={"worker": 4},
        ),
        ALL_REDUCE,
        {"worker": (2, {})},
        says="each worker beyond 2 brought 10%",
    ),
}


def told(found: Decision) -> tuple[Any, Any]:
    groups = {role: (group.count, group.resource.manifest()) for role, group in found.groups.items()}
    return groups, {name: each.manifest() for name, each in found.nodes.items()}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_row(row: Row) -> None:
    found = decide(row.event, row.history, row.limits, NOW)
    assert told(found) == (row.groups, row.nodes), found.reason
    assert row.says in found.reason


COLD = {"cpu": "12", "memory": "16Gi"}
TWO_CORES = Resources.parse({"cpu": "2"})
BOUNDS = {
    "the user's number stays": (Role(count=3), None, {"worker": (None, COLD)}),
    "the user's resources stay": (Role(resource=TWO_CORES), None, {"worker": (1, {"memory": "16Gi"})}),
    "a role that does not scale stays": (Role(auto=False), None, {}),
    "at least": (Role(least=3), None, {"worker": (3, COLD)}),
    "whole units": (Role(least=3, unit=2), None, {"worker": (4, COLD)}),
    "the largest machine": (
        Role(),
        {"cpu": "8", "memory": "8Gi"},
        {"worker": (1, {"cpu": "8", "memory": "8Gi"})},
    ),
}


@pytest.mark.parametrize(("role", "machine", "groups"), BOUNDS.values(), ids=BOUNDS)
def test_bounds(role: Role, machine: dict[str, str] | None, groups: dict[str, Any]) -> None:
    limits = Limits({"worker": role}, machine=Resources.parse(machine) if machine else None)
    assert told(decide(Event.START, CREATE, limits, NOW))[0] == groups


def test_the_first_nodes_get_a_fifth_of_the_job_at_most() -> None:
    limits = replace(PS_JOB, total=Resources.parse({"cpu": "2", "memory": "10Gi"}))
    part = {"cpu": "400m", "memory": "2Gi"}
    assert told(decide(Event.START, CREATE, limits, NOW))[0] == {"ps": (1, part), "worker": (1, part)}


def test_the_limits_of_the_job_are_kept_by_fewer_nodes() -> None:
    history = replace(CREATE, past=(past(*uses("worker", *[(3.0, 4.0)] * 4)),))
    limits = replace(ALL_REDUCE, total=Resources.parse({"cpu": "9"}))
    found = decide(Event.START, history, limits, NOW)
    assert found.groups["worker"].count == 2
    assert "the limits of the job leave 2 of worker" in found.reason


def test_an_algorithm_of_ones_own_goes_first() -> None:
    def two(history: History, limits: Limits, now: datetime) -> Proposal | None:
        return Proposal("two are enough", {"worker": Group(2)})

    mine = Algorithm("two", frozenset(Event), frozenset(StageName), "worker", two)
    found = decide(Event.START, CREATE, PS_JOB, NOW, (mine, *ALGORITHMS))
    assert (found.groups["worker"].count, found.groups["ps"].count, found.algorithm) == (2, 4, "two ps-cold")


# laws

node = st.builds(
    lambda role, i, cpu, gib, cores, size: Use(
        f"j-{role}-{i}", role, cpu, int(gib * GIB), cores, int(size * GIB)
    ),
    st.sampled_from(["worker", "ps", "chief"]),
    st.integers(0, 5),
    st.floats(0, 40),
    st.floats(0, 80),
    st.sampled_from([0.0, 1.0, 4.0, 16.0]),
    st.sampled_from([0.0, 2.0, 16.0, 64.0]),
)
taken = st.builds(
    lambda minutes, workers, steps, nodes: Sample(
        NOW + timedelta(minutes=minutes), workers, steps, steps * 8, tuple(nodes)
    ),
    st.integers(0, 500),
    st.integers(1, 40),
    st.floats(0, 100),
    st.lists(node, max_size=8, unique_by=lambda use: use.name),
)
kills = st.lists(
    st.builds(
        Killed,
        st.just("j-worker-0"),
        st.sampled_from(["worker", "ps"]),
        st.just(NOW),
        st.integers(0, 80 * GIB),
    ),
    max_size=2,
)
runs = st.lists(taken, max_size=8).map(lambda each: tuple(sorted(each, key=lambda sample: sample.at)))
amounts = st.builds(
    lambda cpu, memory: Resources.parse({"cpu": cpu, "memory": f"{memory}Gi"}),
    st.integers(1, 40),
    st.integers(1, 80),
)
earlier = st.builds(Past, st.just("u0"), st.just("p"), st.just(NOW), st.booleans(), runs, kills)
histories = st.builds(
    History,
    uid=st.just("u1"),
    name=st.just("j"),
    stage=st.sampled_from(StageName),
    samples=runs,
    past=st.lists(
        st.builds(Past, st.just("u0"), st.just("p"), st.just(NOW), st.booleans(), runs, kills), max_size=2
    ).map(tuple),
    killed=kills,
    planned=st.just(()),
    counts=st.dictionaries(st.sampled_from(["worker", "ps"]), st.integers(1, 20)),
    resources=st.dictionaries(st.sampled_from(["worker", "ps"]), amounts),
    settled=st.booleans(),
    remaining=st.sampled_from([None, timedelta(minutes=5), timedelta(hours=5)]),
    total=st.sampled_from([None, timedelta(minutes=5), timedelta(hours=5)]),
)
roles = st.builds(
    lambda least, more, unit, auto, count: Role(
        least, None if more is None else least + more, unit, auto, count
    ),
    st.integers(1, 4),
    st.sampled_from([None, 0, 4, 30]),
    st.sampled_from([1, 1, 2]),
    st.booleans(),
    st.sampled_from([None, None, 3]),
)
bounds = st.builds(
    Limits,
    roles=st.fixed_dictionaries({"worker": roles}, optional={"ps": roles}),
    total=st.sampled_from([Resources({}), Resources.parse({"cpu": "100", "memory": "400Gi"})]),
    machine=st.sampled_from([None, Resources.parse({"cpu": "24", "memory": "48Gi"})]),
    room=st.sampled_from([None, {"worker": 0, "ps": 0}, {"worker": 3}]),
)


@settings(max_examples=60)
@given(st.sampled_from(Event), histories, bounds)
def test_laws(event: Event, history: History, limits: Limits) -> None:
    found = decide(event, history, limits, NOW)
    assert found == decide(event, history, limits, NOW)
    assert found.reason
    for name, group in found.groups.items():
        role = limits.roles[name]
        assert role.auto
        if group.count is not None:
            assert role.count is None
            assert group.count >= 1
            assert group.count % role.unit == 0
            assert group.count != history.counts.get(name)
            assert group.count >= role.least
            if role.most is not None and role.most >= -(-role.least // role.unit) * role.unit:
                assert group.count <= role.most
        for key, amount in group.resource.items():
            assert amount.value > 0
            if limits.machine is not None:
                assert amount.value <= limits.machine[key].value
    counts = {**history.counts, **{n: g.count for n, g in found.groups.items() if g.count is not None}}
    wants = {
        n: history.resources.get(n, Resources({})) | found.groups.get(n, Group()).resource for n in counts
    }
    before = {n: history.resources.get(n, Resources({})) for n in history.counts}

    def total(sizes: dict[str, Any], each: dict[str, Resources], key: str) -> Any:
        return sum(each[n][key].value * sizes[n] for n in sizes if key in each[n])

    if found.groups:
        for key, limit in limits.total.items():
            allowed = max(limit.value, total(dict(history.counts), before, key))
            assert total(counts, wants, key) <= allowed
