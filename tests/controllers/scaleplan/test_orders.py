"""Every order of kubectl scale, a manual ScalePlan and an automatic one → the size in docs/scaleplans.md.

`scale n`: a user writes replicas into the ElasticJob. `plan n`: a user writes a ScalePlan. `auto n`: an
optimizer does. `…`: the operator looks, and carries out what is open.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.order import by_age
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.grant import Grant, Place
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.scaleplan.fold import fold
from elasticjob.controllers.scaleplan.queue import follow_queue
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import job, life, plan, resource, role, template
from lab.virtual.passes import TEAM, Passes

ELASTIC: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 4}
FIXED: dict[str, Any] = {}
NOT_AUTO: dict[str, Any] = {**ELASTIC, "autoScale": False}


SECOND = timedelta(seconds=1)


def sizing(
    asked: int | None = 2,
    worker: Manifest = ELASTIC,
    *,
    generation: int = 1,
    between: timedelta = SECOND,
    **spec: Any,
) -> Passes:
    return Passes(job({"worker": role(asked, **worker)}, generation=generation, **spec), between=between)


def play(world: Passes, events: str) -> Passes:
    world.look_at_the_job()  # the JobResource
    for event in events.split(", "):
        match event.split():
            case ["…"]:
                world.settle()
            case ["scale", size]:
                world.scale(int(size))
                world.look_at_the_job()  # the operator sees each change of a user before the next
            case ["leave"]:
                world.scale(None)
            case ["max", size]:
                world.scale(world.asked, maxReplicas=int(size))
            case ["plan", size]:
                world.plan(int(size), manual=True)
            case ["auto", size]:
                world.plan(int(size))
            case _:
                raise AssertionError(event)
    world.settle()
    return world


ROWS: list[tuple[int | None, dict[str, Any], str, int, str]] = [
    (2, ELASTIC, "scale 3", 3, "the user's size"),
    (2, ELASTIC, "plan 3", 3, "the user's plan"),
    (2, ELASTIC, "auto 4", 4, "an elastic role moves within its bounds"),
    (2, ELASTIC, "auto 9", 4, "and not beyond"),
    (2, ELASTIC, "scale 3, auto 4", 3, "decided on the size before: it gives way"),
    (2, ELASTIC, "plan 3, auto 4", 3, "the same"),
    (2, ELASTIC, "scale 3, …, auto 4", 4, "decided on the user's size: it moves from there"),
    (2, ELASTIC, "plan 3, …, auto 4", 4, "the same"),
    (2, ELASTIC, "auto 4, scale 3", 3, "the newest user's change supersedes it"),
    (2, ELASTIC, "auto 4, plan 3", 3, "the same"),
    (2, ELASTIC, "auto 4, …, scale 3", 3, "the user changes what an optimizer has done"),
    (2, ELASTIC, "auto 4, …, plan 3", 3, "the same"),
    (2, ELASTIC, "auto 4, …, plan 2", 2, "also back to what the ElasticJob says"),
    (2, ELASTIC, "scale 3, plan 4", 4, "of two users the newest"),
    (2, ELASTIC, "plan 4, scale 3", 3, "the same"),
    (2, ELASTIC, "plan 4, …, scale 3", 3, "the same"),
    (2, ELASTIC, "auto 3, auto 4", 4, "of two optimizers the newest"),
    (2, ELASTIC, "scale 3, …, scale 2", 2, "each change counts once"),
    (2, ELASTIC, "auto 4, …, max 3", 3, "bounds hold as soon as they change"),
    (2, ELASTIC, "scale 4, …, auto 1, …, leave", 1, "a size that is left to the optimizer stays"),
    (2, FIXED, "auto 4", 2, "a role without other sizes does not move"),
    (2, FIXED, "scale 3, …, auto 4", 3, "the same"),
    (2, FIXED, "scale 3, …, leave, …, auto 4", 4, "until it is left to the optimizer"),
    (None, FIXED, "auto 4", 4, "a size that is left to the optimizer"),
    (None, FIXED, "auto 4, …, scale 3, …, auto 2", 3, "a user decides it"),
    (2, NOT_AUTO, "auto 4", 2, "only users scale this role"),
    (2, NOT_AUTO, "auto 4, plan 3", 3, "the same"),
]


@pytest.mark.parametrize(("asked", "worker", "events", "size", "why"), ROWS)
def test_who_decides(asked: int | None, worker: dict[str, Any], events: str, size: int, why: str) -> None:
    assert play(sizing(asked, worker), events).size == size, why


@pytest.mark.parametrize("order", list(permutations(("scale 3", "plan 4", "auto 1"))))
@pytest.mark.parametrize("between", [", ", ", …, "])
def test_every_order_ends_with_the_last_word(order: tuple[str, ...], between: str) -> None:
    """The last user's, unless the operator had carried it out before an optimizer decided."""
    ended = play(sizing(), between.join(order))
    last = order[-1] if "…" in between or order[-1] != "auto 1" else order[-2]
    assert ended.size == int(last.split()[1])
    assert set(ended.phases().values()) <= {"Succeeded", "Superseded"}


SIX = resource({"worker": 6})
IN_SLICES = tuple(life(n, workload=f"slice-{n}") for n in range(6))
KEPT = Grant("team", admitted=True, places=tuple(Place(f"slice-{n}", "worker", 1) for n in (0, 1, 3, 4, 5)))


@pytest.mark.parametrize(
    ("removed", "lives", "left"),
    [
        ((), IN_SLICES, (0, 1, 3, 4, 5)),
        ((), IN_SLICES[:4] + IN_SLICES[5:], (0, 1, 3, 4, 5)),
        ((), IN_SLICES[:2] + IN_SLICES[3:4] + IN_SLICES[5:], (0, 1, 2, 3, 5)),
        ((1,), IN_SLICES, (0, 2, 3, 4, 5)),
        ((), (), (0, 1, 2, 3, 4)),
    ],
    ids=["its slice is taken back", "one has no pod", "two have none", "one is removed", "all are alike"],
)
def test_a_plan_and_the_queue_agree_on_which_nodes_stay(
    removed: tuple[int, ...], lives: tuple[Life, ...], left: tuple[int, ...]
) -> None:
    """Removed by name, quota taken back, without a pod, the highest index: of either, one leaves."""
    asked = plan(
        "p", {} if removed else {"worker": 5}, removePods=[{"name": f"digits-worker-{n}"} for n in removed]
    )
    elastic = job({"worker": {"replicas": 6, "minReplicas": 1, "maxReplicas": 8, "template": template()}})
    folded = fold(elastic, SIX, asked, KEPT, lives)
    assert folded.sizes["worker"].indices == left
    if not removed:
        by_queue = follow_queue(elastic, SIX, KEPT, lives)
        assert by_queue is not None
        assert by_queue.sizes["worker"].indices == left


def test_within_a_second_a_users_plan_is_the_newer_one() -> None:
    made = plan("a-users", {"worker": 3}, manual=True), plan("digits-auto-1", {"worker": 4})
    assert by_age(made) == (made[1], made[0])


@pytest.mark.parametrize("first", [8, 98])
@pytest.mark.parametrize("between", ["scale 3, scale 4", "scale 3, …, scale 4", "scale 4, scale 3, scale 4"])
def test_of_two_sizes_within_a_second_the_newer_wins(first: int, between: str) -> None:
    """Generations 9 and 10 are in order, though their names are not."""
    ended = play(sizing(generation=first, between=timedelta(0)), between)
    assert ended.size == 4


def test_of_two_tools_plans_within_a_second_the_newer_wins() -> None:
    world = sizing(between=timedelta(0))
    world.settle()
    for number, name in enumerate(("zeta", "alpha")):  # each is newer than its name says
        world.add(plan(name, {"worker": 3 + number}, manual=True))
    world.settle()
    assert (world.size, world.phases()["zeta"]) == (4, "Superseded")


@given(st.permutations([f"digits-user-{n}" for n in (9, 10, 11, 99, 100)]), st.lists(st.integers(0, 2)))
def test_plans_of_users_are_in_the_order_of_their_generations(named: list[str], ages: list[int]) -> None:
    """Whatever clocks of API servers say; other plans keep their places among them."""
    seconds = dict(zip(named, ages, strict=False))
    made = [plan(name, manual=True, age=seconds.get(name, 0)) for name in named]
    made.insert(2, plan("zeta", age=1))
    ordered = [each.metadata.name for each in by_age(made) if each.metadata.name != "zeta"]
    assert ordered == [f"digits-user-{n}" for n in (9, 10, 11, 99, 100)]


LIMITED: dict[str, Any] = {"resourceLimits": {"cpu": "250m"}}  # two nodes of 100m


@pytest.mark.parametrize("history", [0, 10])
def test_a_size_that_cannot_be_had_is_asked_once_and_again_when_the_job_changes(history: int) -> None:
    world = sizing(**LIMITED, runPolicy={"scalePlanHistoryLimit": history})
    world.settle()
    world.scale(3, minReplicas=3)  # of an older webhook: it would say that three do not fit
    world.settle()
    assert (world.size, world.job.status.reason) == (2, "Impossible")
    assert [name for name in world.made if "user" in name] == ["digits-user-2"]
    assert len(world.made) == 2
    world.edit(resourceLimits={"cpu": "4"})
    world.settle()
    assert (world.size, world.job.status.reason or None) == (3, None)


def test_a_size_that_the_wrong_plan_has_superseded_is_asked_again() -> None:
    """An earlier release took the plan of generation 9 for newer than that of 10."""
    world = sizing(generation=9)
    world.settle()
    world.scale(3)
    world.settle()
    found = world.server.lookup(SCALEPLAN, "digits-user-10", TEAM)
    world.server.change(SCALEPLAN, found, status={**found["status"], "phase": "Superseded"})
    world.set_size(2)
    world.settle()
    assert world.size == 3


@pytest.mark.parametrize("at_once", [True, False])
def test_memory_in_a_template_takes_the_place_of_what_a_plan_gave(at_once: bool) -> None:
    """Also where the same edit resumes the job: no pod is made before."""
    world = sizing(worker={"template": template("4Gi")})
    world.settle()
    world.add(plan("oom", {"worker": 2}, memory={"worker": "8Gi"}))
    world.settle()
    old, new = template("4Gi"), template("32Gi")
    for suspend, memory in ((True, old), (True, old if at_once else new), (False, new)):
        worker = world.server.lookup(ELASTICJOB, "digits", TEAM)["spec"]["replicaSpecs"]["worker"]
        world.edit(suspend=suspend, replicaSpecs={"worker": {**worker, "template": memory}})
        for _ in range(20):
            world.look_at_the_job()
            given = world.resource.spec.replica_resource_specs["worker"].resource
            assert suspend or world.resource.spec.suspend or given == {"memory": "32Gi"}
            world.look_at_the_plans()
            world.make_ready()
    assert not world.resource.spec.suspend
    assert [name for name in world.made if "template" in name] == ["digits-template-3"]
