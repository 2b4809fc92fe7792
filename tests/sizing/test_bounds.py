"""For any job: growth settles near the best, and no plan leaves what the user allows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Placement, Sample
from elasticjob.api.sizes.role import Role
from elasticjob.sizing.bounds import bound
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.rules import growth
from lab.build.sizing import NOW, asked

TICK = timedelta(seconds=100)
NOISE = 0.02

Curve = Callable[[int], float]


def speed(work: float, latency: float, wire: float) -> Curve:
    """Return steps a second of an all-reduce job by number of workers, with the work of a step divided."""
    return lambda n: 1 / (work / n + latency * (n - 1) + wire * 2 * (n - 1) / n)


@settings(max_examples=60)
@given(
    curve=st.builds(speed, st.floats(0.5, 50), st.floats(0, 0.1), st.floats(0, 0.5)),
    most=st.integers(2, 64),
    unit=st.sampled_from([1, 1, 2, 4]),
    room=st.integers(0, 64),
    seed=st.integers(0, 100),
)
def test_growth_settles_and_is_worth_it(curve: Curve, most: int, unit: int, room: int, seed: int) -> None:
    """In four hours: some tens of changes, most of them early, and the end is near the best that pays."""
    role, noise = Role(least=unit, most=max(most, unit), unit=unit), random.Random(seed)
    size, samples, judged, changes = unit, tuple[Sample, ...](), 0, list[int]()
    for tick in range(144):
        now = NOW + tick * TICK
        measured = curve(size) * noise.gauss(1, NOISE)
        samples = kept(
            (*samples, *(Sample(at=now, nodes=(), workers=size, samples=measured) for _ in range(3)))
        )
        facts = asked(
            {"worker": role}, sizes={"worker": size}, room={"worker": max(0, room - size)}, samples=samples
        )
        facts = replace(facts, now=now, judged=judged)
        plan, judged = bound(facts, growth.propose(facts)), size
        if plan:
            size = plan.groups["worker"].count or size
            changes.append(tick)
        assert unit <= size <= max(role.most or 0, unit)
        assert size % unit == 0
        assert size <= max(room, unit)
    assert len(changes) <= 40
    assert len([tick for tick in changes if tick >= 72]) <= 16
    sizes = range(unit, max(unit, min(role.most or 0, room)) + 1, unit)
    assert curve(settled(size, changes, samples)) >= 0.7 * max(map(curve, sizes))


def kept(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The newest three samples of each size, as the statistics keep a few."""
    found = dict[int, list[Sample]]()
    for record in samples:
        found[record.workers] = [*found.get(record.workers, []), record][-3:]
    return tuple(sorted((r for of_size in found.values() for r in of_size), key=lambda r: r.at))


def settled(size: int, changes: list[int], samples: tuple[Sample, ...]) -> int:
    """The size at the end; that before, while a trial goes on."""
    if changes and changes[-1] >= 142:
        return [r.workers for r in samples][-1]
    return size


amounts = st.builds(
    lambda cpu, memory: Resources.parse(
        {n: a for n, a in {"cpu": cpu, "memory": f"{memory}Gi"}.items() if not a.startswith("0")}
    ),
    st.integers(0, 40).map(str),
    st.integers(0, 80),
)
roles = st.builds(
    Role,
    least=st.integers(0, 3),
    most=st.integers(3, 12) | st.none(),
    unit=st.sampled_from([1, 2]),
    auto=st.booleans(),
    resource=st.sampled_from([{}, {"cpu": "2"}, {"memory": "4Gi", "nvidia.com/gpu": "1"}]),
)
plans = st.builds(
    Change,
    groups=st.dictionaries(
        st.sampled_from(["worker", "ps", "other"]), st.builds(Group, st.integers(0, 100) | st.none(), amounts)
    ),
    nodes=st.dictionaries(st.sampled_from(["digits-worker-0", "digits-ps-0", "letters-worker-0"]), amounts),
    reason=st.just("because"),
)


@st.composite
def questions(draw: st.DrawFn) -> Facts:
    given = {name: draw(roles) for name in ("worker", "ps")}
    sizes = {name: role.smallest for name, role in given.items()}
    limits = draw(st.sampled_from([{}, {"cpu": "20"}, {"cpu": "100", "memory": "300Gi"}]))
    room = draw(st.none() | st.fixed_dictionaries({"worker": st.integers(0, 8)}))
    return asked(given, sizes=sizes, limits=limits, room=room)


def needs(facts: Facts, placed: Placement) -> Resources:
    """What a job needs, counted in another way than the code does: node by node."""
    total, facts = Resources({}), replace(facts, placed=placed)
    for role in facts.job.roles:
        for index in range(facts.count(role)):
            total = total + facts.resource_of(role, f"digits-{role}-{index}")
    return total


@settings(max_examples=150)
@given(facts=questions(), plan=plans)
def test_no_plan_leaves_what_the_user_allows(facts: Facts, plan: Change) -> None:
    found, placed = bound(facts, plan), facts.placed
    assert found.reason or not found
    for name, group in found.groups.items():
        role = facts.job.roles[name]
        assert role.auto
        assert not set(group.resource) & set(role.resource) or name == "ps"
        assert all(amount.value > 0 for amount in group.resource.values())
        if group.count is not None:
            assert role.elastic
            assert group.count % role.unit == 0
            assert role.smallest <= group.count <= (role.most or group.count)
            room = (placed.room or {}).get(name)
            assert room is None or group.count <= max(placed.sizes[name] + room, role.smallest)
    sizes = placed.sizes | {r: g.count for r, g in found.groups.items() if g.count is not None}
    resources = {r: g.resource.manifest() for r, g in found.groups.items()}
    nodes = {n: r.manifest() for n, r in found.nodes.items()}
    after = needs(facts, placed.but(sizes=sizes, resources=resources, nodes=nodes))
    before = needs(facts, placed)
    for excess in after.over(facts.limits):
        assert excess.wanted.value <= before[excess.name].value
