"""Seen → plan of a job's ScalePlans, a row or more for every rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from elasticjob.api.resources import Resources
from elasticjob.controllers.kueue.grant import Grant, Place
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.plan import Action, Apply, Delete
from elasticjob.controllers.passes.rules import leave_it_to_others, leave_it_to_the_collector
from elasticjob.controllers.scaleplan import decide as rules
from elasticjob.controllers.scaleplan.decide import Seen, decide
from lab.build.jobs import LONG_AGO, NOW, asking, at, job, over, plan, resource, role
from lab.build.plans import annotations_of, manifests

ELASTIC = job({"worker": role(2, minReplicas=1, maxReplicas=4)})
READY = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
PATIENCE = timedelta(minutes=10)
NOT_READY = {
    "observedGeneration": 1,
    "conditions": [
        {"type": "Ready", "status": "False", "message": "digits-worker-2 is pending: Unschedulable"}
    ],
}


def seen(
    *plans: Any,
    job_: Any = ELASTIC,
    grant: Grant | None = None,
    lives: tuple[Life, ...] = (),
    asked: dict[str, int] | None = None,
    was: dict[str, int] | None = None,
    **made: Any,
) -> Seen:
    found = resource(**made)
    if was:
        found.metadata.annotations[names.SIZES] = names.written(was)
        found = asking(found, was.get("worker"))
    if asked:
        found.metadata.annotations[names.WANTED] = msgspec.json.encode(asked).decode()
        found = asking(found, asked.get("worker"))
    return Seen(job_, found, plans, grant, lives)


def granted(**counts: int) -> Grant:
    """Places for workers, by the name of their Workload."""
    places = tuple(Place(name, "worker", count) for name, count in counts.items())
    return Grant("team", admitted=True, least={"worker": 1}, places=places)


def for_memory(*each: str) -> Grant:
    """Places for a worker with so much memory each."""
    amounts = [{"main": Resources.parse({"memory": memory})} for memory in each]
    places = tuple(Place(f"w{n}", "worker", 1, amounts=found) for n, found in enumerate(amounts))
    return Grant("team", admitted=True, least={"worker": 1}, places=places)


def live(index: int, workload: str) -> Life:
    return Life(f"digits-worker-{index}", f"{index}", "worker", index, running=True, workload=workload)


def written(action: Action) -> str:
    match action:
        case Apply(_, manifest, "status"):
            return f"{manifest['metadata']['name']} {manifest['status']['phase']}"
        case Apply(kind, manifest, "") if kind.name == "JobResource":
            return f"worker {manifest['spec']['replicaResourceSpecs']['worker']}"
        case Apply(_, manifest, ""):
            return f"{manifest['metadata']['name']} owned"
        case Delete(_, name, _, _):
            return f"-{name}"
        case _:
            raise AssertionError(action)


def up(name: str = "up", workers: int = 3, **more: Any) -> Any:
    return plan(name, {"worker": workers}, **more)


def old(many: int) -> list[Any]:
    """So many plans that are carried out, the oldest first."""
    return [up(f"old-{n}", phase="Succeeded", age=100 - n) for n in range(many)]


SCALING = up(phase="Scaling", started=NOW)
LARGE = {"name": "digits-worker-1", "resource": {"memory": "2Gi"}}
LATE_ONE: Any = {"phase": "Scaling", "started": LONG_AGO, "manual": True}
ROWS: dict[Callable[..., Any], list[tuple[Any, ...]]] = {
    leave_it_to_others: [
        ("somebody else's job", seen(up(), job_=job(managedBy="kueue.x-k8s.io/multikueue")), "ManagedByOther")
    ],
    leave_it_to_the_collector: [
        ("a deleted job", seen(up(), job_=job(metadata={"deletionTimestamp": at(NOW)})), "Deleting")
    ],
    rules.fail_plans_without_a_job: [("no job", Seen(None, None, (up(),)), "JobNotFound", "up Failed")],
    rules.adopt_plans: [
        ("a person's plan", seen(up(owned=False, phase="Succeeded")), "PlansAdopted", "up owned"),
        ("a person's plan for a finished job",
         seen(up(owned=False, phase="Superseded"), job_=job(status=over())), "PlansAdopted", "up owned"),
    ],
    rules.close_plans_of_a_finished_job: [
        ("a finished job", seen(up(), job_=job(status=over())), "JobFinished", "up Superseded")
    ],
    rules.close_plans_that_give_way: [
        ("newer wins", seen(up("a", age=9), up("b", age=5)), "PlansSuperseded", "a Superseded"),
        ("a manual one wins over an automatic one",
         seen(up("a", age=9, phase="Scaling"), up("b", age=5, manual=True)), "PlansSuperseded",
         "a Superseded"),
        ("an automatic size that was decided while a user changed it",
         seen(up("a", manual=True, phase="Scaling", age=9), up("b", 4, age=5)), "PlansSuperseded",
         "b Superseded"),
    ],
    rules.carry_out_the_next: [
        ("the next is carried out", seen(up()), "ScalePlanStarted", "worker {'replicas': 3}", "up Scaling"),
        ("the queue could never give so much",
         replace(seen(plan("up", memory={"worker": "9Gi"})),
                 never=lambda _: "queue team has 8Gi memory at most"), "Impossible", "up Failed"),
        ("it was folded in, and the pass died", seen(up(), sizes={"worker": 3}, folded="up/plan-up"),
         "ScalePlanStarted", "up Scaling"),
        ("a removal was folded in, and the pass died",
         seen(plan("up", removePods=["digits-worker-0"]), sizes={"worker": 1}, vacant={"worker": [0]},
              folded="up/plan-up"), "ScalePlanStarted", "up Scaling"),
        ("nothing to change", seen(up(), sizes={"worker": 3}), "NothingToChange", "up Succeeded"),
        ("the bounds have done what is asked, which an earlier request is over for",
         replace(seen(up(), sizes={"worker": 3}), resource=asking(resource(sizes={"worker": 3}), 5)),
         "NothingToChange", "worker {'replicas': 3}", "up Succeeded"),
        ("impossible", seen(plan("up", {"elf": 1})), "Impossible", "up Failed"),
        ("memory beside a manual plan for the size",
         seen(up("a", manual=True, phase="Scaling"), plan("b", memory={"worker": "1Gi"}, age=5)),
         "ScalePlanStarted", "worker {'replicas': 2, 'resource': {'memory': '1Gi'}}", "b Scaling"),
    ],
    rules.say_what_plans_wait_for: [
        ("memory that a user is changing",
         seen(plan("a", memory={"worker": "1Gi"}, manual=True, phase="Scaling", started=NOW),
              plan("b", memory={"worker": "2Gi"}, age=5), status=NOT_READY), "PlansWait", "b Pending"),
        ("a job that was made suspended", Seen(job(suspend=True), None, (up(),)), "PlansWait", "up Pending"),
    ],
    rules.follow_what_is_asked: [
        ("an autoscaler asks for more", seen(sizes={"worker": 2}, asked={"worker": 4}), "Scaled",
         "worker {'replicas': 4}"),
        ("and for more than the job may have", seen(sizes={"worker": 2}, asked={"worker": 9}), "Scaled",
         "worker {'replicas': 4}"),
        ("an older tool writes the size itself", seen(sizes={"worker": 9}, was={"worker": 2}), "Scaled",
         "worker {'replicas': 4}"),
        ("a JobResource of an earlier release", Seen(ELASTIC, asking(resource({"worker": 3}), None), ()),
         "Scaled", "worker {'replicas': 3}"),
    ],
    rules.follow_the_queue: [
        ("a slice was taken back",
         seen(sizes={"worker": 4}, grant=granted(base=1, one=1, two=1),
              lives=(live(1, "gone"), live(3, "one"))), "QueueFollowed",
         "worker {'replicas': 3, 'vacant': [1]}"),
        ("more was admitted of what is asked for",
         seen(sizes={"worker": 1}, grant=granted(base=1, one=2), asked={"worker": 4}), "QueueFollowed",
         "worker {'replicas': 3}"),
        ("an autoscaler asks for more than is admitted",
         seen(sizes={"worker": 4}, grant=granted(base=1, one=1), asked={"worker": 2}, was={"worker": 2}),
         "QueueFollowed", "worker {'replicas': 2}"),
        ("an autoscaler asks for fewer",
         seen(sizes={"worker": 4}, grant=granted(base=1, one=3), asked={"worker": 2}), "QueueFollowed",
         "worker {'replicas': 2}"),
        ("a job that was evicted begins with its minimum",
         seen(sizes={"worker": 3}, grant=Grant("team", least={"worker": 1})), "QueueFollowed",
         "worker {'replicas': 1}"),
    ],
    rules.finish_plans: [
        ("the queue has not admitted the memory that an optimizer asked for",
         seen(plan("up", memory={"worker": "2Gi"}, phase="Scaling", started=LONG_AGO), status=READY,
              resources={"worker": {"memory": "2Gi"}}, grant=for_memory("1Gi", "512Mi")), "PlansFinished",
         "worker {'replicas': 2, 'resource': {'memory': '1Gi'}}", "up Failed"),
        ("nor that of a single node, which a user asked for",
         seen(plan("up", createPods=[LARGE], **LATE_ONE), status=READY,
              nodes={"digits-worker-1": {"memory": "2Gi"}}, grant=for_memory("1Gi", "512Mi")),
         "PlansFinished", "up Failed"),
        ("nor the node that was created by its name",
         seen(plan("up", createPods=[{"name": "digits-worker-2"}], **LATE_ONE), status=READY,
              grant=granted(base=1, one=1), asked={"worker": 3}), "PlansFinished", "up Failed"),
        ("all are ready", seen(SCALING, sizes={"worker": 3}, status=READY), "PlansFinished", "up Succeeded"),
        ("it took too long",
         seen(up(phase="Scaling", started=LONG_AGO), sizes={"worker": 3}, status=NOT_READY), "PlansFinished",
         "up Failed"),
        ("the job is suspended", seen(SCALING, suspend=True), "PlansFinished", "up Succeeded"),
        ("the queue has not admitted what an optimizer asked for",
         seen(up(phase="Scaling", started=LONG_AGO), status=READY, grant=granted(base=1, one=1),
              asked={"worker": 3}), "PlansFinished", "worker {'replicas': 2}", "up Failed"),
        ("nor what a user asked for, which is wanted even so",
         seen(up(phase="Scaling", started=LONG_AGO, manual=True), status=READY, grant=granted(base=1, one=1),
              asked={"worker": 3}), "PlansFinished", "up Failed"),
    ],
    rules.forget_the_oldest: [
        ("a long history", seen(*old(12)), "PlansForgotten", "-old-0", "-old-1"),
        ("a short history, as the job says", seen(*old(2), job_=job(runPolicy={"scalePlanHistoryLimit": 0})),
         "PlansForgotten", "-old-0", "-old-1"),
    ],
    rules.wait_for_the_nodes: [
        ("nodes are not there yet", seen(SCALING, sizes={"worker": 3}, status=NOT_READY), "Scaling")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "row"), [pytest.param(rule, row, id=row[0]) for rule in ROWS for row in ROWS[rule]]
)
def test_rule(rule: Callable[..., Any], row: tuple[Any, ...]) -> None:
    """A row is its name, what is seen, the reason of the plan, and its actions in their order."""
    _, given, reason, *actions = row
    assert rule(given, NOW) is not None
    decided = decide(given, NOW)
    assert (decided.reason, [written(action) for action in decided.actions]) == (reason, actions)


def test_a_number_beyond_the_range_stays_as_the_autoscaler_wrote_it() -> None:
    """Each would write its own otherwise, in turn."""
    [written_] = manifests(decide(seen(sizes={"worker": 2}, asked={"worker": 9}), NOW))
    assert written_["spec"]["replicas"] == 9
    assert rules.follow_what_is_asked(seen(sizes={"worker": 4}, asked={"worker": 9}), NOW) is None


def test_a_size_that_somebody_has_asked_for_since_is_not_written_over() -> None:
    found = seen(sizes={"worker": 2}, asked={"worker": 9})
    assert found.resource is not None
    about = msgspec.structs.replace(found.resource.metadata, resource_version="7")
    newer = replace(found, resource=found.resource.model_copy(update={"metadata": about}))
    [written_] = manifests(decide(newer, NOW))
    assert written_["metadata"]["resourceVersion"] == "7"


def test_every_rule_has_a_row() -> None:
    assert ROWS.keys() == set(rules.RULES)


def test_what_another_manager_asks_for_is_wanted_like_what_the_spec_asks_for() -> None:
    """Of an autoscaler: fewer stay fewer, and more wait until the queue admits them."""
    fewer = seen(sizes={"worker": 2}, was={"worker": 3}, asked={"worker": 3}, grant=granted(base=1, one=2))
    assert rules.follow_the_queue(fewer, NOW) is None
    more = seen(sizes={"worker": 4}, was={"worker": 2}, asked={"worker": 2}, grant=granted(base=1, one=1))
    kept = annotations_of(decide(more, NOW))
    assert (kept[names.WANTED], kept[names.SIZES]) == ('{"worker": 4}', '{"worker": 2}')


def test_an_automatic_plan_for_memory_waits_for_a_manual_one() -> None:
    first = plan("a", memory={"worker": "1Gi"}, manual=True, phase="Scaling", started=NOW)
    waits = plan("b", memory={"worker": "2Gi"}, age=5, phase="Pending")
    decided = decide(seen(first, waits, status=NOT_READY), NOW)
    assert (decided.reason, decided.actions, decided.again_in) == ("Scaling", (), PATIENCE)


def test_plans_wait_for_the_job_resource() -> None:
    [said] = manifests(decide(Seen(ELASTIC, None, (up(),)), NOW))
    assert said["status"]["conditions"][0]["message"] == "the job has no JobResource yet"
    assert not decide(Seen(ELASTIC, None, (up(phase="Pending"),)), NOW).actions


def test_a_role_may_be_reached_while_another_node_restarts() -> None:
    counted = {"replicaStatuses": {"worker": {"desired": 3, "current": 3, "ready": 3}}, **NOT_READY}
    given = seen(SCALING, sizes={"worker": 3}, status=counted)
    assert [written(action) for action in decide(given, NOW).actions] == ["up Succeeded"]


def test_an_old_status_finishes_nothing() -> None:
    given = seen(SCALING, sizes={"worker": 3}, status=READY, generation=2)
    assert not decide(given, NOW).actions


def test_the_sentence_of_a_failure_says_what_was_missing() -> None:
    waits = job({"worker": role(2, minReplicas=1, maxReplicas=4)}, status={"reason": "Unschedulable"})
    given = seen(up(phase="Scaling", started=LONG_AGO), sizes={"worker": 3}, status=NOT_READY, job_=waits)
    [end] = manifests(decide(given, NOW))
    condition, *progress = end["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in progress] == [("Ready", "False"), ("Stalled", "True")]
    assert (condition["type"], condition["reason"]) == ("Failed", "Unschedulable")
    assert condition["message"] == (
        "nodes were not ready after 600 s (scalePlanDeadlineSeconds): "
        "digits-worker-2 is pending: Unschedulable"
    )
    assert end["status"]["finishTime"] == at(NOW)


def test_what_was_changed_is_recorded() -> None:
    _, start = manifests(decide(seen(up(reason="speed grows")), NOW))
    assert start["status"]["changes"] == ["worker replicas 2 to 3"]
    assert decide(seen(up(reason="speed grows")), NOW).sentence == "worker replicas 2 to 3 (up: speed grows)"
    assert decide(
        seen(up(phase="Scaling", started=NOW - timedelta(minutes=4)), status=NOT_READY), NOW
    ).again_in == (PATIENCE - timedelta(minutes=4))


def test_how_a_plan_ended_can_be_read_for_a_while_whatever_the_history() -> None:
    """Who asked for it would ask again otherwise, at once and for ever."""
    none = job(runPolicy={"scalePlanHistoryLimit": 0})
    just = plan("up", {"worker": 3}, phase="Succeeded", finished=NOW - timedelta(seconds=4))
    decided = decide(seen(just, job_=none, status=READY), NOW)
    assert (decided.actions, decided.again_in) == ((), timedelta(seconds=6))
    later = decide(seen(just, job_=none, status=READY), NOW + timedelta(seconds=6))
    assert [written(action) for action in later.actions] == ["-up"]


def test_what_a_plan_changed_is_known_after_a_crash_between_its_two_writes() -> None:
    plan_ = decide(seen(up()), NOW)
    assert [len(group) for group in plan_.groups] == [1, 1]
    write, start = manifests(plan_)
    found = resource({"worker": 3})
    found.metadata.annotations.update(write["metadata"]["annotations"])
    [again] = manifests(decide(replace(seen(up()), resource=found), NOW))
    assert again["status"]["changes"] == start["status"]["changes"] != ["carried out"]
