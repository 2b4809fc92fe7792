"""Each row of the table, with numbers that can be followed by hand; and what all rows keep."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import JobFacts, Mode, Placement, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.sizing import demand
from elasticjob.sizing.algorithm import Algorithm, Decider
from elasticjob.sizing.decide import decide
from elasticjob.sizing.facts import Event, Facts, OomKill, Past, Waiting
from elasticjob.sizing.table import ALGORITHMS

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
GIB = 1 << 30
PS_JOB = {"ps": Role(most=15), "worker": Role(most=60)}
ALL_REDUCE = {"worker": Role(most=16)}


def facts(roles: dict[str, Role], *, limits: dict[str, str] | None = None, **more: Any) -> Facts:
    """Return the facts of a running job, of four servers and four workers unless `sizes` says else."""
    sizes = more.pop("sizes", {"ps": 4, "worker": 4})
    placed = Placement(
        sizes=sizes,
        resources=more.pop("resources", {}),
        room=more.pop("room", {"worker": 100}),
        machine=more.pop("machine", None),
    )
    job = JobFacts(name="j", uid="u1", mode=Mode.CLUSTER, roles=roles, limits=limits or {})
    found = more.pop("samples", ())
    needed = demand.of_samples(found, timedelta(seconds=60))
    usual: dict[str, Any] = {"stage": Stage.RUNNING, "now": NOW, "samples": found, "demand": needed}
    return Facts(job=job, placed=placed, **usual | more)


def created(roles: dict[str, Role], **more: Any) -> Facts:
    """Return the facts of a job that has no sizes yet."""
    usual: dict[str, Any] = {"stage": Stage.CREATE, "sizes": {}, "settled": False}
    return facts(roles, **usual | more)


def asked(given: Facts, event: Event) -> Change:
    return decide(given, event, Decider.BRAIN, ALGORITHMS).change


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


def past(*nodes: Use, completed: bool = True, killed: tuple[OomKill, ...] = ()) -> Past:
    return Past("u0", "before", NOW, completed, samples(*nodes), killed)


WORKERS = uses("worker", (3.0, 4.0), (3.5, 4.0), cores=4.0, size=5.0)
IDLE = samples(*uses("ps", (1.5, 5), (8, 5)), workers=32)
FOUR = uses("worker", *[(2.5, 4)] * 4, cores=4)
ROOMY = {"worker": {"cpu": "4", "memory": "5Gi"}}
STAYS = {"ps": Role(), "worker": Role(count=4)}
AT_FOUR_SIZES = tuple(
    sample
    for n, count in enumerate((1, 2, 4, 8))
    for sample in samples(
        *WORKERS, workers=count, steps=count / (0.1 + 0.1 * (count - 1) / count) / 32, first=9 * n
    )
)


@dataclass(frozen=True)
class Row:
    event: Event
    facts: Facts
    groups: dict[str, tuple[int | None, dict[str, str]]] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    says: str = ""


ROWS: dict[str, Row] = {
    "nothing is known": Row(
        Event.START,
        created(PS_JOB),
        {"ps": (1, {"cpu": "1", "memory": "8000Mi"}), "worker": (1, {"cpu": "1", "memory": "8000Mi"})},
        says="replicas is not set",
    ),
    "servers from history": Row(  # ceil(6) + 4 cores; 1.5 · 22 / 10 -> 4; 1.2 · 10 GiB
        Event.START,
        created(PS_JOB, past=(past(*uses("ps", (6, 10), (6, 10), (5, 8), (5, 8)), *WORKERS),)),
        {"ps": (4, {"cpu": "10", "memory": "12Gi"}), "worker": (4, {"cpu": "4200m", "memory": "5735Mi"})},
        says="used 22 cores in all",
    ),
    "workers from history, and what killed some": Row(
        Event.START,
        created(ALL_REDUCE, past=(past(*WORKERS, killed=(OomKill("j-worker-0", "worker", NOW, 10 * GIB),)),)),
        {"worker": (4, {"cpu": "4200m", "memory": "12Gi"})},
        says="1 completed job like it",
    ),
    "a job that failed teaches no sizes": Row(
        Event.START,
        created(ALL_REDUCE, past=(past(*WORKERS, completed=False),)),
        {"worker": (1, {"cpu": "1", "memory": "8000Mi"})},
    ),
    "the first adjustment": Row(  # ceil(2) + 4 = 6 cores; 20/4 · 6 / 6 = 5; 1.2 · 5
        Event.START,
        facts(
            {"ps": Role(most=15), "worker": Role(count=4)},
            stage=Stage.PS_INITIAL,
            samples=samples(*uses("ps", (2, 5), (2, 5), (2, 4))),
        ),
        {"ps": (5, {"cpu": "6", "memory": "6Gi"})},
        says="for 20 workers",
    ),
    "a hot server": Row(  # 32 / 4 = 8 times, but at most 32 / 14 = 2.29 times
        Event.TROUBLE,
        facts(STAYS, samples=samples(*uses("ps", (14, 5), (4, 5)))),
        nodes={"j-ps-0": {"cpu": "32"}},
        says="j-ps-0 uses 88% of its cores",
    ),
    "a crowded server": Row(
        Event.TROUBLE,
        facts(STAYS, samples=samples(*uses("ps", (4, 30), (4, 5)))),
        nodes={"j-ps-0": {"memory": "40Gi"}},
        says="more than 90% of its memory",
    ),
    "idle servers": Row(
        Event.IDLE,
        facts({"ps": Role(), "worker": Role(count=32)}, samples=IDLE, remaining=timedelta(hours=2)),
        nodes={"j-ps-0": {"cpu": "6"}},
        says="less than 40%",
    ),
    "idle servers of a job that is nearly over": Row(
        Event.IDLE,
        facts({"ps": Role(), "worker": Role(count=32)}, samples=IDLE, remaining=timedelta(minutes=5)),
        says="nothing of it may change, or has to",
    ),
    "servers have room": Row(  # 0.8 / 0.25 · 4 = 13, at most 4 more
        Event.IDLE,
        facts(
            PS_JOB, samples=samples(*uses("ps", (4, 5), (4, 5)), *uses("worker", *[(2.5, 4)] * 4, cores=4))
        ),
        {"worker": (8, {})},
        says="use 25% of the busiest server",
    ),
    "a server works at its limit": Row(
        Event.TROUBLE,
        facts(
            {"ps": Role(auto=False), "worker": Role()},
            sizes={"ps": 1, "worker": 12},
            samples=samples(*uses("ps", (15.5, 5)), workers=12),
        ),
        {"worker": (8, {})},
        says="a parameter server uses 97% of its cores",
    ),
    "workers may be tried": Row(
        Event.IDLE,
        facts(ALL_REDUCE, sizes={"worker": 2}, resources=ROOMY, samples=samples(*WORKERS, workers=2)),
        {"worker": (4, {})},
        says="to see whether it pays",
    ),
    "there is no room": Row(
        Event.IDLE,
        facts(
            ALL_REDUCE, sizes={"worker": 2}, resources=ROOMY, samples=samples(*WORKERS, workers=2), room={}
        ),
        says="the cluster has room for 0 more",
    ),
    "more workers did not pay": Row(  # 2 -> 4 workers: 10 -> 10.5 steps: each brought 5 % of what one brought
        Event.IDLE,
        facts(ALL_REDUCE, samples=samples(workers=2) + samples(workers=4, steps=10.5, first=9)),
        {"worker": (2, {})},
        says="an added worker brings 5% of one before",
    ),
    "workers pay by the model of their speed": Row(  # t = 0.1 + 0.1 · (n - 1) / n
        Event.IDLE,
        facts(ALL_REDUCE, sizes={"worker": 8}, resources=ROOMY, samples=AT_FOUR_SIZES),
        {"worker": (16, {})},
        says="16 workers pay",
    ),
    "memory is never taken before forty minutes, nor below the peak": Row(
        Event.IDLE,
        facts(
            {"worker": Role(count=2)},
            sizes={"worker": 2},
            resources={"worker": {"memory": "16Gi"}},
            samples=samples(*uses("worker", (1, 0.5), cores=4, size=16), workers=2),
        ),
        says="the number of workers is the user's",
    ),
}


def told(found: Change) -> tuple[Any, Any]:
    groups = {role: (group.count, group.resource.manifest()) for role, group in found.groups.items()}
    return groups, {name: each.manifest() for name, each in found.nodes.items()}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_row(row: Row) -> None:
    found = asked(row.facts, row.event)
    assert told(found) == (row.groups, row.nodes), found.reason
    assert row.says in found.reason
    for hours in range(0, 7 * 24, 5):
        for each in ALGORITHMS:
            another_time = replace(row.facts, now=NOW + timedelta(hours=hours))
            keeps_the_laws(another_time, row.event, min(each.by), (each,))


FIRST = {"cpu": "1", "memory": "8000Mi"}
BOUNDS = {
    "the user's number stays": (Role(count=3), None, {}),
    "the user's resources stay": (Role(resource={"cpu": "2"}), None, {"worker": (1, {"memory": "8000Mi"})}),
    "a role that does not scale stays": (Role(auto=False), None, {}),
    "at least": (Role(least=3), None, {"worker": (3, FIRST)}),
    "whole units": (Role(least=3, unit=2), None, {"worker": (4, FIRST)}),
    "whole units with a chief": (Role(least=2, unit=2, beside=1), None, {"worker": (3, FIRST)}),
    "the largest machine": (
        Role(),
        {"cpu": "500m", "memory": "2Gi"},
        {"worker": (1, {"cpu": "500m", "memory": "2Gi"})},
    ),
}


@pytest.mark.parametrize(("role", "machine", "groups"), BOUNDS.values(), ids=BOUNDS)
def test_bounds(role: Role, machine: dict[str, str] | None, groups: dict[str, Any]) -> None:
    found = asked(created({"worker": role}, machine=machine), Event.START)
    assert told(found)[0] == groups, found.reason


def test_the_first_nodes_get_a_fifth_of_the_job_at_most() -> None:
    found = asked(created(PS_JOB, limits={"cpu": "4", "memory": "10Gi"}), Event.START)
    part = {"cpu": "1", "memory": "2Gi"}
    assert told(found)[0] == {"ps": (1, part), "worker": (1, part)}


def test_the_limits_of_the_job_are_kept_by_fewer_nodes() -> None:
    history = (past(*uses("worker", *[(3.0, 4.0)] * 4)),)
    found = asked(created(ALL_REDUCE, past=history, limits={"cpu": "9"}), Event.START)
    assert found.groups["worker"].count == 2
    assert "resourceLimits leave 2 of worker" in found.reason


def test_an_algorithm_of_ones_own_goes_first() -> None:
    def two(facts: Facts) -> Change:
        return Change({"worker": Group(2)}, reason="two are enough")

    mine = Algorithm("two", frozenset(Event), frozenset(Stage), two, "worker")
    for by in Decider:
        found = decide(created(PS_JOB), Event.START, by, (mine, *ALGORITHMS)).change
        counts = found.groups["worker"].count, found.groups["ps"].count
        assert (*counts, found.algorithm) == (2, 1, "two start")


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
        OomKill,
        st.just("j-worker-0"),
        st.sampled_from(["worker", "ps"]),
        st.just(NOW),
        st.integers(0, 80 * GIB),
    ),
    max_size=2,
)
runs = st.lists(taken, max_size=8).map(lambda each: tuple(sorted(each, key=lambda sample: sample.at)))
amounts = st.builds(
    lambda cpu, memory: {"cpu": str(cpu), "memory": f"{memory}Gi"}, st.integers(1, 40), st.integers(1, 80)
)
earlier = st.builds(Past, st.just("u0"), st.just("p"), st.just(NOW), st.booleans(), runs, kills)
spans = st.sampled_from([None, timedelta(minutes=5), timedelta(hours=5)])
roles = st.builds(
    lambda least, more, unit, auto, count: Role(
        least=least, most=None if more is None else least + more, unit=unit, auto=auto, count=count
    ),
    st.integers(1, 4),
    st.sampled_from([None, 1, 4, 30]),
    st.sampled_from([1, 1, 2]),
    st.booleans(),
    st.sampled_from([None, None, 3]),
)


@st.composite
def all_facts(draw: st.DrawFn) -> Facts:
    chosen = draw(st.fixed_dictionaries({"worker": roles}, optional={"ps": roles, "chief": roles}))
    sizes = {name: role.clamp(draw(st.integers(1, 20))) for name, role in chosen.items()}
    nodes = {f"j-{name}-{index}": name for name, size in sizes.items() for index in range(min(size, 3))}
    some = st.sets(st.sampled_from([*nodes]), max_size=3)
    since = NOW - draw(st.sampled_from([timedelta(0), timedelta(minutes=20)]))
    return facts(
        chosen,
        limits=draw(st.sampled_from([{}, {"cpu": "100", "memory": "400Gi"}])),
        sizes=sizes,
        resources=draw(st.dictionaries(st.sampled_from(sorted(chosen)), amounts)),
        room=draw(st.sampled_from([None, {"worker": 0, "ps": 0}, {"worker": 3}])),
        machine=draw(st.sampled_from([None, {"cpu": "24", "memory": "48Gi"}])),
        stage=draw(st.sampled_from(Stage)),
        samples=draw(runs),
        settled=draw(st.booleans()),
        past=tuple(draw(st.lists(earlier, max_size=2))),
        killed=tuple(draw(kills)),
        remaining=draw(spans),
        total=draw(spans),
        servers_due=draw(st.booleans()),
        waiting=tuple(
            Waiting(node, nodes[node], since, Resources.parse(draw(amounts))) for node in sorted(draw(some))
        ),
        cuts=dict.fromkeys(sorted(draw(some)), since),
        judged=draw(st.integers(0, 5)),
        held=draw(st.sampled_from([None, since, NOW + timedelta(minutes=5)])),
        decisions=draw(st.integers(0, 3)),
    )


@settings(max_examples=80)
@given(st.sampled_from(Event), all_facts(), st.sampled_from(Decider), st.integers(0, 10**6))
def test_laws(event: Event, given: Facts, by: Decider, seed: int) -> None:
    """What all rows decide together keeps them, and what each decides alone: earlier ones hide its faults."""
    chance = Random(seed)
    keeps_the_laws(given, event, by, ALGORITHMS)
    for row in ALGORITHMS:
        stage = given.stage if given.stage in row.stages else chance.choice(sorted(row.stages))
        now = NOW + chance.random() * timedelta(days=chance.choice([1, 400]))
        its = chance.choice(sorted(row.events)), chance.choice(sorted(row.by))
        keeps_the_laws(replace(given, stage=stage, now=now), *its, (row,))


def keeps_the_laws(given: Facts, event: Event, by: Decider, rows: tuple[Algorithm, ...]) -> None:
    found = decide(given, event, by, rows).change
    assert found == decide(given, event, by, rows).change
    assert found.reason
    for node, resource in found.nodes.items():
        assert given.role_of(node)
        assert all(amount.value > 0 for amount in resource.values())
    for name, group in found.groups.items():
        role = given.roles[name]
        assert role.auto
        if group.count is not None:
            assert role.count is None
            assert role.allows(group.count)
            assert role.clamp(group.count) == group.count != given.count(name)
        for key, amount in group.resource.items():
            assert amount.value > 0
            before = given.resource(name).get(key, type(amount)(0))
            if given.machine is not None:
                assert amount.value <= (given.machine[key] + before).value
            use = max((max(u.memory, u.peak) for s in given.samples for u in s.of(name)), default=0)
            if key == "memory" and amount < before and given.samples and name != "ps":
                assert amount.value > use  # no shrink goes below the peak
                assert given.now - given.samples[0].at >= given.pace.shrink
    after, now = given.need(found.groups, found.nodes), given.need()
    assert not after.over(given.limits, now)
