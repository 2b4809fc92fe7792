"""What every plan keeps, on random clusters: the properties of section 6 of the fulfilment reference."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import example, given, settings

from elasticjob.brain.fulfilment import places
from elasticjob.brain.fulfilment.passes import may_grow
from elasticjob.brain.fulfilment.planner import plan, plan_of
from elasticjob.brain.fulfilment.state import Amounts, Cluster, Machine, Plan
from tests.kit.planning.replay import (
    applied,
    asked,
    bound,
    gives,
    grows,
    most_used,
    names_of,
    order,
    ours,
    placed,
    rooms_after,
    rooms_now,
    shift,
    sizes,
    used,
)
from tests.kit.planning.worlds import LOST, NOW, World, bounds, on_worlds, plus, ranged, worlds

examples = settings(max_examples=60)
ROUNDS = 12
"""Plans after which a cluster with a constant load must rest."""


def planned(world: World) -> Plan:
    return plan(world.cluster, world.jobs, world.options, NOW)


@examples
@given(worlds(), st.integers(0, 999))
def test_order_of_the_input_does_not_matter(world: World, number: int) -> None:
    random = Random(number)
    machines, demands, jobs = list(world.cluster.machines), list(world.cluster.demands), list(world.jobs)
    for each in (machines, demands, jobs):
        random.shuffle(each)
    shuffled = replace(world, cluster=Cluster(tuple(machines), tuple(demands)), jobs=tuple(jobs))
    assert planned(shuffled) == planned(world)
    assert names_of(shuffled.draft()) == names_of(world.draft())


@examples
@given(worlds(), st.sampled_from(("cpu", "memory", "nvidia.com/gpu")))
def test_units_of_a_resource_do_not_matter(world: World, resource: str) -> None:
    def scaled(amount: Amounts) -> Amounts:
        return {name: 7 * each if name == resource else each for name, each in amount.items()}

    machines = tuple(
        replace(each, total=scaled(each.total), idle=scaled(each.idle), soon=scaled(each.soon))
        for each in world.cluster.machines
    )
    demands = tuple(replace(each, amount=scaled(each.amount)) for each in world.cluster.demands)
    jobs = tuple(replace(each, amount=scaled(each.amount)) for each in world.jobs)
    other = planned(replace(world, cluster=Cluster(machines, demands), jobs=jobs))
    same = planned(world)
    assert sizes(other.deltas) == sizes(same.deltas)
    assert sizes(other.waiting) == sizes(same.waiting)


@on_worlds
def test_sizes_are_multiples_of_the_step_within_the_range(world: World) -> None:
    deltas = {each.job: each for each in planned(world).deltas}
    for job in world.jobs:
        least, most = bounds(job)
        if least > most:
            assert job.key not in deltas
            continue
        now = deltas[job.key].after if job.key in deltas else job.now
        assert least <= now <= most
        assert now % job.step == 0
        if job.stays:
            assert now <= max(job.now, least)


@example(10540)  # the only instance with a place is above the last whole step
@on_worlds
def test_no_job_is_taken_below_its_minimum(world: World) -> None:
    for who, job in ours(world, world.draft()):
        kept = job.machines[: ranged(job)]
        assert bound(who) >= min(who.least, len(kept) - kept.count(None))


@on_worlds
def test_number_of_steps_is_bounded(world: World) -> None:
    draft = world.draft()
    askers = len(world.jobs) + len(world.cluster.demands)
    room = sum(job.most - job.least for job in world.jobs)
    unbound = sum(job.machines.count(None) + max(0, bounds(job)[0] - job.now) for job in world.jobs)
    above = sum(max(0, job.now - job.least) for job in world.jobs)
    rounds = 2 * (askers + 1) ** 2 * (above + 1)
    assert draft.steps <= room + unbound + len(world.cluster.demands) + rounds


@examples
@given(worlds(), st.sampled_from((0, places.FEW)))
def test_every_planned_instance_has_a_permitted_machine_with_room(world: World, few: int) -> None:
    with patch.object(places, "FEW", few):
        draft = world.draft()
    rooms = rooms_after(world, draft)
    for place in placed(world, draft):
        assert place.permitted is None or place.machine in place.permitted
        assert min(rooms[place.machine][name] for name in place.need) >= 0
    names = draft.rooms.resources
    for name, room in zip(draft.rooms.names, draft.rooms.soon, strict=True):
        assert dict(zip(names, room, strict=True)) == {each: rooms[name].get(each, 0) for each in names}


@on_worlds
def test_a_resource_is_above_its_limit_only_if_no_job_can_give_it(world: World) -> None:
    draft = world.draft()
    use, most = used(world.cluster, rooms_after(world, draft)), most_used(world)
    above = {name for name in most if use[name] > most[name]}
    for who, job in ours(world, draft):
        requested = {name for name, quantity in job.amount.items() if quantity}
        if who.grown:
            assert above.isdisjoint(requested)
        if not above.isdisjoint(requested):
            assert not gives(who)


@on_worlds
def test_every_shrink_has_a_cause_that_its_reason_names(world: World) -> None:
    draft = world.draft()
    reasons = {each.job: each.reason for each in plan_of(draft).deltas}
    asking = {who.key: who for who in draft.asking}
    for who, job in ours(world, draft):
        given_up = sum(len(take.machines) for take in who.takes)
        outside = max(0, job.now - ranged(job))
        assert max(0, job.now - who.now) == given_up + outside + who.withdrawn
        for take in who.takes:
            assert take.cause.of in reasons[who.key]
            if take.cause.of in asking:
                cause = asking[take.cause.of]
                assert bound(cause) >= cause.least
                assert cause.priority >= who.priority
                assert cause is not who
            else:
                assert job.amount[take.cause.of] > 0


@on_worlds
def test_no_taken_step_could_stay(world: World) -> None:
    draft = world.draft()
    rooms, most = rooms_after(world, draft), most_used(world)
    for who, job in ours(world, draft):
        if who.takes:
            back = dict(rooms)
            for machine in who.takes[-1].machines:
                if machine is not None and machine >= 0:
                    name = draft.rooms.names[machine]
                    back[name] = plus(back[name], job.amount, -1)
            use = used(world.cluster, back)
            full = any(min(back[name].get(each, 0) for each in asked(job)) < 0 for name in back)
            assert full or any(use[name] > most[name] for name in asked(job))


@on_worlds
def test_no_job_that_may_grow_could_take_one_more_step(world: World) -> None:
    draft = world.draft()
    now = rooms_now(world, draft)
    use = used(world.cluster, rooms_after(world, draft))
    for who, job in ours(world, draft):
        if may_grow(who, world.options, NOW):
            assert not grows(world, who, job, now, use)


@on_worlds
def test_each_growth_goes_to_a_least_fulfilled_job_that_can_use_it(world: World) -> None:
    """Growth is undone, and then repeated step by step."""
    draft = world.draft()
    machines, job_of = names_of(draft), dict(ours(world, draft))
    now, after = rooms_now(world, draft), rooms_after(world, draft)
    size = {who: who.now for who in job_of}
    for who in draft.grown:
        for rank in range(size[who] - who.step, size[who]):
            shift(now, after, machines[who.key][rank], job_of[who].amount, 1)
        size[who] -= who.step
    eligible = [who for who in job_of if may_grow(replace(who, now=size[who]), world.options, NOW)]
    for chosen in draft.grown:
        use = used(world.cluster, after)
        for who in eligible:
            before = order(who, size[who]) < order(chosen, size[chosen])
            if who is not chosen and before and size[who] < who.most:
                assert not grows(world, who, job_of[who], now, use)
        for rank in range(size[chosen], size[chosen] + chosen.step):
            shift(now, after, machines[chosen.key][rank], job_of[chosen].amount, -1)
        size[chosen] += chosen.step


@examples
@given(worlds(jobs=3), st.integers(2, 4))
def test_equal_jobs_end_at_most_one_step_apart(world: World, copies: int) -> None:
    first = world.jobs[0]
    least, most = bounds(first)
    first = replace(first, now=least, machines=(LOST,) * least, stays="")
    twins = [replace(first, key=f"{first.key}-{i}") for i in range(copies)]
    draft = replace(world, jobs=(*world.jobs[1:], *twins)).draft()
    found = [who.now for who in draft.jobs if who.job in twins and not who.takes]
    assert most < least or max(found, default=0) - min(found, default=0) <= first.step


@on_worlds
def test_the_plan_of_the_applied_plan_is_empty(world: World) -> None:
    """Where no instance waits for the room of pods that were terminating before."""
    draft = world.draft()
    after = applied(world, draft)
    unbound = {who.key: who.machines.count(None) for who in draft.asking}
    bound = all(job.machines.count(None) == unbound.get(job.key, 0) for job in after.jobs)
    if bound and all(unbound[pod.key] for pod in after.cluster.demands):
        assert planned(after).deltas == ()


@on_worlds
def test_a_constant_load_comes_to_rest(world: World) -> None:
    assert planned(rested(world)).deltas == ()


@on_worlds
def test_without_elastic_jobs_the_plan_is_empty(world: World) -> None:
    fixed = tuple(replace(job, least=job.now, most=job.now, step=1) for job in world.jobs)
    assert planned(replace(world, jobs=fixed)).deltas == ()


@on_worlds
def test_a_machine_without_capacity_changes_nothing(world: World) -> None:
    machines = (*world.cluster.machines, Machine("a", {}, {}, {}))
    other = planned(replace(world, cluster=replace(world.cluster, machines=machines)))
    assert sizes(other.deltas) == sizes(planned(world).deltas)
    assert sizes(other.waiting) == sizes(planned(world).waiting)


@on_worlds
def test_every_entry_has_a_sentence_with_name_and_figures(world: World) -> None:
    found = planned(world)
    reasons = [(each.job, each.reason) for each in found.deltas]
    for job, reason in (*reasons, *((each.job, each.reason) for each in found.waiting)):
        assert reason.startswith(job)
        assert any(letter.isdigit() for letter in reason.removeprefix(job))
    waiting = {each.job: each.missing for each in found.waiting}
    assert all(missing > 0 for missing in waiting.values())


@on_worlds
def test_rebalancing_brings_scores_closer(world: World) -> None:
    draft = replace(world, options=replace(world.options, rebalance=True)).draft()
    before, after = ({who.key: who for who in each.jobs} for each in (world.draft(), draft))
    moved = [key for key in after if after[key].now != before[key].now]
    for key in moved:
        assert after[key].score >= min(before[each].score for each in moved)
        assert after[key].score <= max(before[each].score for each in moved)
        for take in after[key].takes[len(before[key].takes) :]:
            assert after[key].priority <= after[take.cause.of].priority
    rooms = rooms_after(world, draft)
    assert all(rooms[place.machine][name] >= 0 for place in placed(world, draft) for name in place.need)


@on_worlds
def test_rebalancing_comes_to_rest(world: World) -> None:
    assert planned(rested(replace(world, options=replace(world.options, rebalance=True)))).deltas == ()


def rested(world: World) -> World:
    """The world after some plans."""
    for _ in range(ROUNDS):
        if not planned(world).deltas:
            break
        world = applied(world, world.draft(), stays=False)
    return world
