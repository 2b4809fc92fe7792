"""The goodput planner: what it guarantees on random clusters, and choices against brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from math import inf
from random import Random

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from elasticjob.brain.fulfilment import knapsack
from elasticjob.brain.fulfilment.goodput import Placement, place_all, plan
from elasticjob.brain.fulfilment.knapsack import Choice, choose
from elasticjob.brain.fulfilment.offers import Candidate, Options
from elasticjob.brain.fulfilment.state import CPU, Cluster, Demand, Job, Machine, Plan

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GPU = "nvidia.com/gpu"
AT_ONCE = Options(settle=timedelta(0), restart=timedelta(seconds=1))


def machine(name: str, gpus: int, cores: int = 64, used: Mapping[str, int] | None = None) -> Machine:
    total = {GPU: gpus, CPU: 1000 * cores}
    idle = {resource: amount - (used or {}).get(resource, 0) for resource, amount in total.items()}
    return Machine(name, total, idle, idle)


def cluster(*gpus: int) -> Cluster:
    return Cluster(tuple(machine(f"m{at}", count) for at, count in enumerate(gpus)))


def job(key: str = "a", least: int = 1, most: int = 8, now: int = 0, **fields: object) -> Job:
    given = {"amount": {GPU: 1}, "machines": ("m0",) * now, "submitted": NOW - timedelta(hours=1)}
    return Job(key=key, least=least, most=most, now=now, **{**given, **fields})  # type: ignore[arg-type]


def linear(most: int, serial: float = 0.0) -> dict[int, float]:
    """Speeds by Amdahl's law."""
    return {n: n / (1 + serial * (n - 1)) for n in range(1, most + 1)}


def trained(
    key: str = "a", serial: float = 0.0, done: float = 1e5, left: float | None = None, **fields: object
) -> Candidate:
    of = job(key, **fields)  # type: ignore[arg-type]
    return Candidate(of, linear(of.most, serial), done, left)


def sizes(planned: Placement) -> dict[str, int]:
    return {key: share.size for key, share in planned.shares.items()}


def applied(
    before: Cluster, jobs: Sequence[Candidate], planned: Placement
) -> tuple[Cluster, list[Candidate]]:
    """Return cluster and jobs after a plan was carried out."""
    free = {each.name: Counter(each.idle) for each in before.machines}
    for each in jobs:
        for name in each.job.machines:
            if name is not None:
                free[name].update(each.job.amount)
        for name in planned.places[each.job.key]:
            free[name].subtract(each.job.amount)
    machines = tuple(replace(each, idle=free[each.name], soon=free[each.name]) for each in before.machines)
    wanted = {delta.job: delta.after for delta in planned.plan.deltas}
    after = []
    for each in jobs:
        now, places = wanted.get(each.job.key, each.job.now), planned.places[each.job.key]
        pending = (None,) * (now - len(places))
        after.append(replace(each, job=replace(each.job, now=now, machines=(*places, *pending))))
    return replace(before, machines=machines), after


def random_cluster(random: Random) -> tuple[Cluster, list[Candidate]]:
    """A cluster with jobs of several shapes, some of them running."""
    total = {
        f"m{at}": {GPU: gpus, CPU: 8000 * gpus}
        for at, gpus in enumerate(random.choices((1, 2, 4, 8), k=random.randint(1, 4)))
    }
    free = {name: dict(amount) for name, amount in total.items()}
    jobs = []
    for at in range(random.randint(1, 5)):
        step = random.choice((1, 1, 2))
        least = step * random.randint(1, 2)
        most = least + step * random.randint(0, 4)
        amount = {GPU: random.randint(1, 2), CPU: random.choice((1000, 8000, 12000))}
        places: list[str] = []
        for name in free:
            while len(places) < least and all(free[name][r] >= amount[r] for r in amount):
                places.append(name)
                for resource, value in amount.items():
                    free[name][resource] -= value
        if len(places) < least or random.random() < 0.5:
            for name in places:
                for resource, value in amount.items():
                    free[name][resource] += value
            places = []
        ranks = (*places, *[None] * random.choice((0, 0, 0, step))) if len(places) < most else places
        priority, machines = random.choice((0, 0, 5)), tuple(ranks)
        spec = job(
            f"job-{at}",
            least,
            most,
            len(ranks),
            step=step,
            amount=amount,
            machines=machines,
            priority=priority,
        )
        speeds = linear(most, random.uniform(0, 0.5)) if random.random() < 0.5 else {}
        done = random.choice((0.0, random.uniform(0, 1e5)))
        jobs.append(Candidate(spec, speeds, done, random.choice((None, 10.0, 1e4))))
    made = tuple(Machine(name, all_, free[name], free[name]) for name, all_ in total.items())
    return Cluster(made), jobs


OPTIONS = st.builds(
    Options,
    limits=st.just({}),
    settle=st.just(timedelta(0)),
    power=st.sampled_from((-1.0, -0.5, 0.0, 0.5, 1.0)),
    favour=st.sampled_from((0.0, 0.5, 1.0)),
    restart=st.sampled_from((timedelta(0), timedelta(seconds=30))),
)


@settings(max_examples=25)
@example(3573, Options(limits={}, settle=timedelta(0)))  # one job is too large for what it was chosen for
@example(878, Options(limits={}, settle=timedelta(0), power=1.0))
@example(987, Options(limits={}, settle=timedelta(0), power=0.0, favour=1.0))
@given(st.integers(0, 2**32), OPTIONS)
def test_plans_keep_their_guarantees(number: int, options: Options) -> None:
    for turn in range(6):
        before, jobs = random_cluster(Random(f"{number}/{turn}"))
        try:
            keeps_its_guarantees(before, jobs, options)
        except Exception:
            note(f"{before} {jobs}")
            raise


def keeps_its_guarantees(before: Cluster, jobs: list[Candidate], options: Options) -> None:
    planned = place_all(before, jobs, options, NOW)
    assert place_all(before, jobs[::-1], options, NOW) == planned
    after, kept = applied(before, jobs, planned)
    assert all(min(each.idle.values()) >= 0 for each in after.machines), "a machine is above its capacity"
    for spec in (each.job for each in kept):
        assert spec.now == 0 or (spec.least <= spec.now <= spec.most and spec.now % spec.step == 0)
    had = {each.job.key: each.job.now for each in jobs}
    assert all(each.job.now for each in kept if had[each.job.key]), "a running job was stopped"
    again = plan(after, kept, options, NOW)
    assert again.deltas == ()
    deltas = {delta.job: delta for delta in planned.plan.deltas}
    assert {key: (delta.before, delta.after) for key, delta in deltas.items()} == {
        each.job.key: (had[each.job.key], each.job.now) for each in kept if had[each.job.key] != each.job.now
    }
    assert all(each.reason.startswith(each.job) for each in planned.plan.deltas)
    assert all(each.reason.startswith(each.job) for each in planned.plan.waiting)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 6)), min_size=1, max_size=4), st.integers(1, 9))
def test_sizes_have_the_greatest_sum_of_utilities(shapes: list[tuple[float, int]], gpus: int) -> None:
    jobs = [trained(f"job-{at}", serial, most=most) for at, (serial, most) in enumerate(shapes)]
    planned = place_all(cluster(gpus), jobs, AT_ONCE, NOW)
    fair = [planned.shares[each.job.key].fair for each in jobs]

    def worth(counts: Sequence[int]) -> float:
        found = 0.0
        for each, size, share in zip(jobs, counts, fair, strict=True):
            speed = each.done / (each.done / each.speeds[size] + 1) if size else 0.0
            found -= 1 / max(speed / share, 0.02)
        return found

    every = product(*(range(each.job.most + 1) for each in jobs))
    best = max(worth(counts) for counts in every if sum(counts) <= gpus)
    assert worth([sizes(planned)[each.job.key] for each in jobs]) == pytest.approx(best, abs=1e-4)


@settings(max_examples=60)
@given(st.data())
def test_choices_are_the_best(data: st.DataObject) -> None:
    resources = data.draw(st.integers(1, 2))
    size = st.tuples(*[st.integers(0, 5)] * resources)
    choice = st.builds(Choice, size, st.integers(-20, 20).map(float))
    choices = data.draw(st.lists(st.lists(choice, min_size=1, max_size=4), min_size=1, max_size=4))
    capacity = [data.draw(st.integers(0, 12)) for _ in range(resources)]

    def total(picked: Sequence[Choice]) -> float:
        fits = all(sum(each.size[at] for each in picked) <= most for at, most in enumerate(capacity))
        return sum(each.value for each in picked) if fits else -inf

    best = max(map(total, product(*choices)))
    found = choose(choices, capacity)
    assert (found is None) == (best == -inf)
    if found is not None:
        assert total([each[at] for each, at in zip(choices, found, strict=True)]) == pytest.approx(best)


def test_solver_agrees_with_programming(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [[Choice((n,), -1 / (n + at / 7)) for n in range(1, 6)] for at in range(12)]
    exact = choose(choices, [30])
    monkeypatch.setattr(knapsack, "LONGEST", 0)
    solved = choose(choices, [30])
    assert exact is not None
    assert solved is not None
    assert sum(choices[j][at].value for j, at in enumerate(solved)) == pytest.approx(
        sum(choices[j][at].value for j, at in enumerate(exact))
    )


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 6), OPTIONS, st.booleans())
def test_no_job_starves(running: list[int], spare: int, options: Options, suspend: bool) -> None:
    gpus = sum(max(1, count) for count in running) + spare
    jobs = [
        Candidate(job(f"job-{at}", now=count, most=4), linear(4, at / 10), done=10.0**at)
        for at, count in enumerate(running)
    ]
    before = Cluster((machine("m0", gpus, used={GPU: sum(running)}),))
    planned = place_all(before, jobs, replace(options, suspend=suspend), NOW)
    waited = [each.job.key for each in jobs if not each.job.now]
    assert all(planned.shares[key].size >= 1 for key in waited)
    assert suspend or min(share.size for share in planned.shares.values()) >= 1
    assert all(0 < planned.shares[key].rho < inf for key in waited)


def test_equal_jobs_get_equal_shares() -> None:
    jobs = [trained(key) for key in "abcd"]
    assert sizes(place_all(cluster(4, 4), jobs, AT_ONCE, NOW)) == dict.fromkeys("abcd", 2)


def test_gpus_go_where_they_speed_up_most() -> None:
    jobs = [trained("scales"), trained("hardly", serial=0.6)]
    found = sizes(place_all(cluster(8), jobs, AT_ONCE, NOW))
    assert found == {"scales": 6, "hardly": 2}


@pytest.mark.parametrize(("left", "after"), [(10.0, 2), (100.0, 4)])
def test_a_change_is_made_if_it_pays_within_the_remaining_time(left: float, after: int) -> None:
    running = Candidate(job(now=2, most=4), linear(4), left=left)
    options = replace(AT_ONCE, restart=timedelta(seconds=6))
    assert sizes(place_all(cluster_with(running, 4), [running], options, NOW)) == {"a": after}


def cluster_with(running: Candidate, gpus: int) -> Cluster:
    return Cluster((machine("m0", gpus, used={GPU: running.job.now}),))


def test_a_slower_size_is_given_up() -> None:
    running = Candidate(job(now=3, most=4), {1: 1.0, 2: 1.5, 3: 1.2, 4: 1.1}, done=1e5)
    found = plan(cluster_with(running, 4), [running], AT_ONCE, NOW)
    assert [(each.before, each.after) for each in found.deltas] == [(3, 2)]
    assert found.deltas[0].reason == (
        "a gives up 1 instance of 3, without which it is faster: 1.25 times as fast as now, "
        "1.36 times the speed of its fair share, rho 0.39"
    )


def test_a_job_that_has_waited_too_long_begins_before_others_grow() -> None:
    options = replace(AT_ONCE, power=1.0, suspend=True)
    fast = Candidate(job("fast", now=4, most=4, submitted=NOW), linear(4), done=1e6)
    slow = Candidate(job("slow", least=2, most=2), {2: 0.001}, done=1e6)
    before = Cluster((machine("m0", 4, used={GPU: 4}),))
    late = replace(slow, job=replace(slow.job, submitted=NOW - timedelta(minutes=5)))
    greedy = replace(late, speeds={2: 1.0}, done=1e9)
    assert sizes(place_all(before, [fast, slow], options, NOW)) == {"fast": 2, "slow": 2}
    assert sizes(place_all(before, [fast, greedy], replace(options, favour=4.0), NOW))["slow"] == 0


def test_higher_priority_chooses_first_and_lower_keeps_its_least() -> None:
    low = trained("low", now=4, most=4)
    high = trained("high", most=8, priority=10)
    found = place_all(Cluster((machine("m0", 8, used={GPU: 4}),)), [low, high], AT_ONCE, NOW)
    assert sizes(found) == {"low": 1, "high": 7}


def test_a_job_without_a_place_waits_and_says_so() -> None:
    found = plan(cluster(1), [trained(least=4, most=8)], AT_ONCE, NOW)
    assert [(each.job, each.missing) for each in found.waiting] == [("a", 4)]
    assert found.waiting[0].reason == "a has no place for 4 of its minimum of 4"


def test_pending_pods_of_others_keep_their_room() -> None:
    others = Cluster(cluster(4).machines, (Demand("x", {GPU: 3}, NOW),))
    assert sizes(place_all(others, [trained()], AT_ONCE, NOW)) == {"a": 1}


def test_jobs_are_packed_on_few_machines() -> None:
    jobs = [trained("wide", least=4, most=4), trained("narrow", least=1, most=1)]
    places = place_all(cluster(4, 2, 1), jobs, AT_ONCE, NOW).places
    assert places == {"wide": ("m0",) * 4, "narrow": ("m2",)}


def test_a_job_does_not_grow_soon_after_a_change_nor_while_it_must_stay() -> None:
    quiet = trained(now=1, changed=NOW - timedelta(seconds=30))
    before = cluster_with(quiet, 4)
    assert plan(before, [quiet], replace(AT_ONCE, settle=timedelta(seconds=60)), NOW).deltas == ()
    assert plan(before, [quiet], replace(AT_ONCE, settle=timedelta(seconds=20)), NOW).deltas
    held = trained(now=1, stays="a pod is terminating")
    assert plan(before, [held], AT_ONCE, NOW).deltas == ()


def test_room_for_which_a_job_is_too_large_goes_to_another_one_in_the_same_plan() -> None:
    small = trained("small", now=1, most=2, machines=("m2",), amount={GPU: 1, CPU: 1000})
    large = trained("large", now=2, most=2, machines=("m0", None), amount={GPU: 1, CPU: 8000}, left=10.0)
    before = Cluster(
        (
            machine("m0", 1, cores=8, used={GPU: 1, CPU: 8000}),
            machine("m1", 1, cores=6),
            machine("m2", 1, cores=6, used={GPU: 1, CPU: 1000}),
        )
    )
    options = replace(AT_ONCE, restart=timedelta(seconds=30))
    planned = place_all(before, [small, large], options, NOW)
    assert planned.places == {"small": ("m1", "m2"), "large": ("m0",)}
    assert [(each.job, each.before, each.after) for each in planned.plan.deltas] == [
        ("large", 2, 1),
        ("small", 1, 2),
    ]
    assert plan(*applied(before, [small, large], planned), options, NOW) == Plan()


def test_no_job_no_plan() -> None:
    assert plan(cluster(4), [], AT_ONCE, NOW) == Plan()
