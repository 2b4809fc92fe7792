"""Seen → writes to a job's Workloads, a row or more for every rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from elasticjob.api.readings import number
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.controllers.kueue import decide as rules
from elasticjob.controllers.kueue.decide import PAUSED, Seen, decide, frees, grows
from elasticjob.controllers.kueue.demand import FORM, LOWEST, QueueRequest, domains
from elasticjob.controllers.kueue.grant import Grant, places_of
from elasticjob.controllers.kueue.quota import Market, market, usage
from elasticjob.controllers.kueue.reclaim import JUDGED, Reclaim, Room
from elasticjob.controllers.kueue.workload import (
    CHAIN,
    FLAVOR,
    GATED_BY,
    GIVEN_BACK,
    HELD,
    NEEDED,
    REPLACES,
    ROOM_FOR,
    TRIES,
    AdmissionCheck,
    Reclaimable,
    ResourceFlavor,
    Workload,
)
from elasticjob.controllers.passes.plan import Action, Create, Delete, Patch
from elasticjob.kube.objects.views import OwnerReference
from lab.build.jobs import NOW, ended, life
from lab.build.plans import manifests
from tests.kit.controllers.queued import BASE, POD, admitted, cluster_queue, demand, flavored, workload

EVICTED = {"Evicted": "Preempted"}
READY = {"PodsReady": "Started"}
TOO_LATE = {"Evicted": "PodsReadyTimeout"}
ONE, TWO = f"{BASE}-worker-1", f"{BASE}-worker-2"


def seen(
    given: QueueRequest | None,
    *workloads: Workload,
    lives: tuple[Any, ...] = (),
    rooms: Room | None = None,
    **more: Any,
) -> Seen:
    more |= {"reclaim": Reclaim(rooms={"w": rooms}, waiting=frozenset({"w"}))} if rooms else {}
    known: Market = market([more.pop("cluster_queue", cluster_queue("all", "4"))], workloads)
    return Seen(given, workloads, lives, market=known, queue="all", **more)


BASES = {demand(3, least, **more).base for least, more in ((1, {}), (2, {}), (2, {"unit": 2}))}
BASES.update(demand(priority_class=("WorkloadPriorityClass", name)).base for name in ("low", "high"))


def short(name: str) -> str:
    start, _, number = name.partition("-worker-")
    return f"slice {number}" if number else "base" if start in BASES else name


def written(action: Action) -> str:
    match action:
        case Create(_, manifest):
            [pods] = manifest["spec"]["podSets"]
            priority = manifest["spec"].get("priority", "")
            return f"+{short(manifest['metadata']['name'])} {pods['count']} {priority}".strip()
        case Delete(_, name):
            return f"-{short(name)}"
        case Patch(_, name, _, {"status": status}):
            now = [f"{c['type']}={c['status']}" for c in status["conditions"]]
            more = [field for field in status if field != "conditions"]
            return f"{short(name)}: {' '.join([*now, *more])}"
        case Patch(_, name, _, {"metadata": {"ownerReferences": [owner], "labels": labels}}):
            assert labels[LABEL_JOB] == "digits"
            return f"{name} is owned by {owner['uid']}"
        case Patch(_, name, _, {"metadata": {"finalizers": []}}):
            return f"{short(name)} let go"
        case Patch(_, name, _, {"metadata": {"annotations": found}, **rest}):
            return f"{short(name)} {' '.join(found)}{rest.get('spec', '')}"
        case Patch(_, name, _, {"spec": {"podSets": [pods]}}):
            return f"{short(name)} is for {pods['count']}"
        case Patch(_, name, _, {"spec": spec}):
            return f"{short(name)}{spec}"
        case _:
            raise AssertionError(action)


def succeeded(index: int = 0, **more: Any) -> Any:
    return ended(index, code=0, **more)


def with_pod(name: str, index: int = 0) -> Any:
    return life(index, workload=name)


IMPORTANT = demand(priority_class=("WorkloadPriorityClass", "high"))


def classed(name: str, priority: int) -> Workload:
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    return admitted(IMPORTANT.base, priority=priority, priorityClassRef=ref, slice_=False)


def held(gates: str) -> QueueRequest:
    return demand(notes={GATED_BY: gates})


REQUEUED_ONE = workload(
    demand(priority_class=("WorkloadPriorityClass", "low")).base,
    annotations={FORM: IMPORTANT.form},
    slice_=False,
    priorityClassRef={"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"},
    priority=1,
)
RUNS = (with_pod(BASE),)
BOTH = (with_pod(BASE), with_pod(ONE, 1))
GIVEN = admitted(ONE, annotations={GIVEN_BACK: "others"})
PAIR = demand(2, 2)
WITH_DONE = replace(PAIR, roles=(replace(PAIR.roles[0], completed=frozenset({0})),))
THREES = demand(3, 3)
FOURS = demand(6, 2, unit=2)
TWO_CORES: Any = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
ELSEWHERE = demand(elsewhere=True, ready=True)
(WORKER,) = demand().roles
DOUBLED = replace(demand(2), roles=(replace(WORKER, wanted=2, template=TWO_CORES),))
BESIDE = {REPLACES: f"ml/{BASE}", CHAIN: BASE}
WAITS = workload(PAIR.base, 2, annotations=BESIDE)
LARGER = admitted(PAIR.base, 2, annotations=BESIDE)
LET_GO = ["base let go", "-base"]
ONLY_BASE = [f"+{DOUBLED.base} 1"]
WAITS_TOO = workload(
    f"{DOUBLED.base}-worker-1", slice_=True, annotations={REPLACES: f"ml/{ONE}", CHAIN: ONE}, age=31
)
WITH_CHECKS = msgspec.structs.replace(
    admitted(), status=msgspec.structs.replace(admitted().status, admission_checks=[AdmissionCheck("c")])
)
SOON = {HELD: (NOW + timedelta(seconds=9)).isoformat()}
HELD_BACK = admitted(true=READY, annotations=SOON)
TRIED = admitted(true=READY, annotations={TRIES: "3"})
SERVED = admitted(true=READY, annotations={ROOM_FOR: json.dumps({"w": (NOW - JUDGED).isoformat()})})
IN_VAIN = admitted(true=READY, annotations={ROOM_FOR: json.dumps({"w": ""})})
GROWN = (admitted(ONE, true=READY), admitted(TWO, true=READY))
OWNER = OwnerReference("elastic.iml.github.io/v1alpha1", "ElasticJob", "digits", "job-1")
OWNED = msgspec.structs.replace(admitted("made").metadata, owner_references=[OWNER])
DONE = msgspec.structs.replace(
    admitted(), status=msgspec.structs.replace(admitted().status, reclaimable_pods=[Reclaimable("worker", 1)])
)
DONE_ONE = msgspec.structs.replace(admitted(ONE), status=DONE.status)
RETURNED = "QuotaReserved=False Admitted=False Evicted=True"
TRUE = "QuotaReserved=True Admitted=True"
Row = tuple[str, Seen, list[str]]
ROWS: dict[Callable[..., Any], list[Row]] = {
    rules.let_go_of_what_no_job_needs: [
        ("the job is gone", seen(None, admitted()), ["base let go", "-base"]),
        ("a pod of it is left", seen(None, admitted(), lives=RUNS), []),
        ("it is being deleted", seen(None, admitted(deleted=True)), ["base let go"]),
        ("the job is in another queue",
         seen(replace(demand(), queue="b"), admitted(), lives=(ended(workload=BASE),)),
         ["base let go", "-base"]),
        ("the job asks for less", seen(demand(), admitted(PAIR.base, 2)), []),
        ("another has taken its place", seen(PAIR, admitted(), LARGER, lives=RUNS), ["base let go", "-base"]),
        ("one that waits is not needed any more", seen(demand(), admitted(), WAITS, lives=RUNS), LET_GO),
        ("and where the job leaves", seen(PAIR, admitted(true=EVICTED), WAITS, lives=RUNS), LET_GO),
    ],
    rules.be_for_what_is_wanted: [
        ("the job asks for less", seen(demand(), admitted(PAIR.base, 2), lives=(with_pod(PAIR.base),)),
         ["base is for 1"]),
        ("one too many leaves", seen(demand(), admitted(PAIR.base, 2), lives=(with_pod(PAIR.base),) * 2), []),
        ("it is to run as many", seen(demand(2), admitted(PAIR.base, 2), lives=(with_pod(PAIR.base),)), []),
        ("it was made larger again, and waits", seen(PAIR, workload(PAIR.base)), ["base is for 2"]),
        ("Kueue lets nobody raise it", seen(PAIR, admitted(PAIR.base)), []),
    ],
    rules.finish_with_the_job: [
        ("all pods have ended",
         seen(demand(ended=True), admitted(), admitted(ONE), lives=(ended(workload=BASE),)),
         ["slice 1 let go", "-slice 1", "base: QuotaReserved=True Admitted=True Finished=True",
          "base let go"]),
        ("a pod goes on", seen(demand(ended=True), admitted(), lives=RUNS), []),
        ("it has been told",
         seen(demand(ended=False), admitted(true={"Finished": "Failed"}, finalizer=False)), []),
    ],
    rules.own_the_prebuilt_base: [
        ("MultiKueue made it", seen(demand(prebuilt="made"), admitted("made")), ["made is owned by job-1"]),
        ("it is owned",
         seen(demand(prebuilt="made"), msgspec.structs.replace(admitted("made"), metadata=OWNED)), []),
        ("it is our own", seen(demand(), admitted()), []),
    ],
    rules.open_the_gates_of_the_base: [
        ("one of two is open", seen(held("b/b"), workload(annotations={GATED_BY: "a/a,b/b"})),
         [f"base {GATED_BY}"]),
        ("all are open", seen(demand(), workload(annotations={GATED_BY: "a/a"})), [f"base {GATED_BY}"]),
        ("none is open", seen(held("a/a"), workload(annotations={GATED_BY: "a/a"})), []),
        ("Kueue lets nobody close one", seen(held("a/a"), workload()), []),
    ],
    rules.have_the_priority_of_the_class: [
        ("another class", seen(IMPORTANT, classed("low", 1), admitted(ONE, priority=0), priority=9),
         ["base{'priorityClassRef': {'name': 'high'}, 'priority': 9}", "slice 1{'priority': 8}"]),
        ("another class while it waits", seen(IMPORTANT, REQUEUED_ONE, priority=9),
         ["base{'priorityClassRef': {'name': 'high'}, 'priority': 9}"]),
        ("the same one", seen(IMPORTANT, classed("high", 9), admitted(ONE, priority=8), priority=9), []),
        ("the minimum was raised to what runs", seen(PAIR, admitted(priority=0), admitted(ONE, priority=-1)),
         [f"slice 1 {NEEDED}{{'priority': 0}}"]),
        ("it was lowered again",
         seen(demand(2), admitted(priority=0), admitted(ONE, priority=0, annotations={NEEDED: "x"})),
         [f"slice 1 {NEEDED}{{'priority': -1}}"]),
        ("it had none: Kueue lets nobody add one", seen(IMPORTANT, admitted(priority=0), priority=9), []),
        ("there is no such class",
         seen(IMPORTANT, classed("low", 1), unknown_class="WorkloadPriorityClass high"), []),
    ],
    rules.pause_with_the_job: [
        ("its user suspends it", seen(demand(suspended=True), admitted()),
         [f"base {PAUSED}{{'active': False}}"]),
        ("pods are on their way out", seen(demand(suspended=True), admitted(), lives=RUNS), []),
        ("its user resumes it", seen(demand(), workload(active=False, annotations={PAUSED: "suspend"})),
         [f"base {PAUSED}{{'active': True}}"]),
        ("an administrator deactivated it", seen(demand(), workload(active=False)), []),
    ],
    rules.queue_the_base: [
        ("a new job", seen(demand(3, 2)), ["+base 2"]),
        ("with a priority", seen(demand(), priority=5), ["+base 1 5"]),
        ("suspended by its user", seen(demand(suspended=True)), []),
        ("with a priority that there is not", seen(demand(), unknown_class="PriorityClass x"), []),
        ("deleted by somebody while its user suspends it",
         seen(demand(suspended=True), workload(active=False, deleted=True)), ["base let go"]),
        ("it waits with another class", seen(IMPORTANT, REQUEUED_ONE, priority=9), []),
        ("finished by somebody", seen(demand(), admitted(true={"Finished": "x"})), ["base let go", "-base"]),
    ],
    rules.return_the_quota_of_an_evicted_base: [
        ("no pod is left", seen(demand(), admitted(true=EVICTED)),
         [f"base: {RETURNED} Requeued=True PodsReady=False admission"]),
        ("the queue was stopped", seen(demand(), admitted(true={"Evicted": "ClusterQueueStopped"})),
         [f"base: {RETURNED} Requeued=False PodsReady=False admission"]),
        ("a pod of a slice is left",
         seen(demand(), admitted(true=EVICTED), admitted(ONE, annotations={GIVEN_BACK: "x"}),
              lives=(with_pod(ONE),)), []),
    ],
    rules.return_slices: [
        ("evicted, its pod is gone", seen(demand(), admitted(true=READY), admitted(ONE, true=EVICTED)),
         [f"base {HELD}", "slice 1 let go", "-slice 1"]),
        ("evicted, since its pod was not ready in time",
         seen(demand(), admitted(true=READY), admitted(ONE, true=TOO_LATE)),
         [f"base {HELD} {TRIES}", "slice 1 let go", "-slice 1"]),
        ("two of them count once",
         seen(demand(), admitted(true=READY), admitted(ONE, true=TOO_LATE), admitted(TWO, true=TOO_LATE)),
         [f"base {HELD} {TRIES}", "slice 1 let go", "-slice 1", "slice 2 let go", "-slice 2"]),
        ("the same, of that try, later", seen(demand(), HELD_BACK, admitted(ONE, true=TOO_LATE)),
         ["slice 1 let go", "-slice 1"]),
        ("evicted, its pod leaves",
         seen(demand(), admitted(true=READY), admitted(ONE, true=EVICTED), lives=BOTH), []),
        ("the base is evicted",
         seen(demand(), admitted(true=EVICTED), admitted(ONE), lives=(with_pod(ONE, 1),)),
         [f"slice 1 {GIVEN_BACK}"]),
    ],
    rules.give_back_for_others: [
        ("others wait",
         seen(demand(2), admitted(true=READY), admitted(ONE), reclaim=Reclaim({("ml", ONE): "w/1"}),
              lives=BOTH), [f"base {HELD}", f"slice 1 {GIVEN_BACK}"]),
    ],
    rules.remember_for_whom_slices_are_given_back: [
        ("others wait",
         seen(demand(2), admitted(true=READY), admitted(ONE), reclaim=Reclaim({("ml", ONE): "w"})),
         [f"base {ROOM_FOR}"]),
        ("its room is there, in vain", seen(demand(), SERVED, rooms=Room.FREE), [f"base {ROOM_FOR}"]),
        ("its room has been taken", seen(demand(), SERVED, rooms=Room.TAKEN), []),
        ("slices still leave", seen(demand(), SERVED, rooms=Room.COMING), [f"base {ROOM_FOR}"]),
        ("it does not wait any more", seen(demand(), SERVED), [f"base {ROOM_FOR}"]),
        ("it was in vain", seen(demand(), IN_VAIN, rooms=Room.VAIN), []),
    ],
    rules.ask_for_larger_ones: [
        ("the base is for less", seen(PAIR, admitted(), lives=RUNS), ["+base 2"]),
        ("the base is for more", seen(demand(), admitted(PAIR.base, 2), lives=RUNS), []),
        ("it was for more before", seen(PAIR, admitted(PAIR.base), lives=RUNS), [f"+{PAIR.base}-anew 2"]),
        ("it waits already", seen(PAIR, admitted(), WAITS, lives=RUNS), []),
        ("the base waits itself", seen(PAIR, workload()), []),
        ("a slice has what it is for less", seen(PAIR, admitted(), admitted(ONE), lives=BOTH), []),
        ("and a part of it", seen(THREES, admitted(), admitted(ONE), lives=BOTH), [f"+{THREES.base} 2"]),
        ("one that is given back has not", seen(PAIR, admitted(), GIVEN, lives=BOTH), ["+base 2"]),
        ("pods are to have more", seen(DOUBLED, admitted(), admitted(ONE), lives=BOTH),
         [f"+{DOUBLED.base} 1", "+slice 1 1 -1"]),
        ("pods of a base that is for more than the minimum by now",
         seen(DOUBLED, admitted(PAIR.base, 2), lives=RUNS), [f"+{DOUBLED.base} 2"]),
        ("not slices, where others wait", seen(DOUBLED, admitted(), admitted(ONE), crowded=True), ONLY_BASE),
        ("nor soon after", seen(DOUBLED, HELD_BACK, admitted(ONE), lives=BOTH), ONLY_BASE),
        ("it has admission checks", seen(PAIR, WITH_CHECKS, lives=RUNS), []),
    ],
    rules.withdraw_what_waited_too_long: [
        ("a slice waits too long", seen(demand(2), admitted(true=READY), workload(ONE, age=31), lives=RUNS),
         [f"base {HELD}", "slice 1 let go", "-slice 1"]),
        ("a slice waits", seen(demand(2), admitted(true=READY), workload(ONE, age=9), lives=RUNS), []),
        ("a larger slice waits too long", seen(DOUBLED, admitted(), admitted(ONE), WAITS_TOO, lives=BOTH),
         [f"base {HELD}", "slice 1 let go", "-slice 1"]),
    ],
    rules.ask_for_idle_quota: [
        ("all of it is idle", seen(demand(3), admitted(true=READY), lives=RUNS),
         ["+slice 1 1 -1", "+slice 2 1 -1"]),
        ("nothing is less important than the job",
         seen(demand(2), admitted(true=READY, priority=LOWEST), lives=RUNS, priority=LOWEST),
         [f"+slice 1 1 {LOWEST}"]),
        ("some of it is idle", seen(demand(9, most=9), admitted(true=READY), lives=RUNS),
         [f"+slice {n} 1 -1" for n in (1, 2, 3)]),
        ("what is idle is of another flavour than the base",
         seen(demand(3), admitted(true=READY), lives=RUNS,
              cluster_queue=flavored("all", {"f": "1", "g": "4"})), []),
        ("some is of that of the base",
         seen(demand(4), admitted(true=READY), lives=RUNS,
              cluster_queue=flavored("all", {"f": "2", "g": "4"})), ["+slice 1 1 -1"]),
        ("the job takes any flavour",
         seen(demand(3, mixed=True), admitted(true=READY), lives=RUNS,
              cluster_queue=flavored("all", {"f": "1", "g": "4"})), ["+slice 1 1 -1", "+slice 2 1 -1"]),
        ("in units", seen(FOURS, admitted(FOURS.base, 2, true=READY)), ["+slice 1 2 -1"]),
        ("others wait", seen(demand(3), admitted(true=READY), lives=RUNS, crowded=True), []),
        ("it has grown too soon before", seen(demand(3), HELD_BACK, lives=RUNS), []),
        ("all are ready", seen(demand(2), TRIED, admitted(ONE, true=READY)), [f"base {TRIES}"]),
        ("one is not", seen(demand(2), TRIED, admitted(ONE)), []),
        ("its own pods do not start", seen(demand(3), admitted(age=31)), []),
        ("not admitted itself", seen(demand(3), workload()), []),
    ],
    rules.give_up_the_surplus: [
        ("fewer are wanted, and the pod of a slice has room in the base",
         seen(demand(1), admitted(true=READY), admitted(ONE, true=READY), lives=(with_pod(ONE, 1),)),
         [f"slice 1 {GIVEN_BACK}"]),
        ("fewer are wanted",
         seen(demand(2), admitted(true=READY), admitted(ONE, true=READY), admitted(TWO, true=READY),
              lives=(with_pod(BASE), with_pod(TWO, 1))), ["slice 1 elasticjob.dlrover/given-back"]),
        ("the node that is left is in a slice",
         seen(demand(1), admitted(true=READY), admitted(ONE, true=READY), lives=(with_pod(ONE, 1),)),
         ["slice 1 elasticjob.dlrover/given-back"]),
        ("the others are still there",
         seen(demand(1), admitted(true=READY), admitted(ONE, true=READY), lives=BOTH), []),
    ],
    rules.renew_what_was_returned: [
        ("a pod has succeeded", seen(demand(), DONE, lives=(ended(code=0, workload=BASE),)), []),
        ("it is gone", seen(demand(), DONE), ["base let go", "-base"]),
        ("another runs", seen(demand(), DONE, lives=RUNS), []),
        ("the pod of a slice is gone",
         seen(demand(2), admitted(), msgspec.structs.replace(admitted(ONE), status=DONE.status), lives=RUNS),
         ["slice 1 elasticjob.dlrover/given-back"]),
    ],
    rules.report: [
        ("pods are not ready", seen(demand(), admitted()), [f"base: {TRUE} PodsReady=False"]),
        ("pods are ready", seen(demand(), admitted(), lives=RUNS), [f"base: {TRUE} PodsReady=True"]),
        ("fewer are wanted than it is for",
         seen(demand(), admitted(PAIR.base, 2), lives=(with_pod(PAIR.base),)),
         [f"base: {TRUE} PodsReady=True"]),
        ("a pod has done its work",
         seen(demand(2, 2), admitted(demand(2, 2).base, 2, true=READY),
              lives=(succeeded(workload=demand(2, 2).base), life(1, workload=demand(2, 2).base))),
         [f"base: {TRUE} PodsReady=True reclaimablePods"]),
        ("the pod of a node that has done its work is gone",
         seen(WITH_DONE, admitted(WITH_DONE.base, 2), lives=(life(1, workload=WITH_DONE.base),)),
         [f"base: {TRUE} PodsReady=True"]),
        ("it is gone, and the other is, too", seen(WITH_DONE, admitted(WITH_DONE.base, 2)),
         [f"base: {TRUE} PodsReady=False"]),
        (
            "another pod has the place of one that has done its work",
            seen(
                demand(2, 2),
                admitted(demand(2, 2).base, 2, true=READY),
                lives=tuple(
                    made(index, workload=demand(2, 2).base)
                    for index, made in enumerate((succeeded, life, life))
                ),
            ),
            [],
        ),
        ("it has been told", seen(demand(), admitted(true=READY), lives=RUNS), []),
        ("it runs elsewhere", seen(ELSEWHERE, admitted()), [f"base: {TRUE} PodsReady=True"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "row"), [pytest.param(rule, row, id=row[0]) for rule in ROWS for row in ROWS[rule]]
)
def test_rule(rule: Callable[..., Any], row: Row) -> None:
    """A row is its name, what is seen, and the writes of the rule in their order."""
    _, given, actions = row
    steps = tuple(rule(given, NOW))
    assert [written(each) for step in steps for group in step.groups for each in group] == actions


def test_a_base_that_was_made_smaller_counts_and_has_room_for_what_it_is_for() -> None:
    smaller = msgspec.structs.replace(admitted(PAIR.base, 2), spec=workload(PAIR.base).spec)
    assert [each.count for each in places_of(smaller, {"f": ResourceFlavor()})] == [1]
    assert usage(smaller) == {("f", "cpu"): 1}


def test_pods_stay_where_the_flavour_is_gone_and_none_is_made() -> None:
    """As with all else of Kueue, when it is uninstalled."""
    places = places_of(admitted(BASE, 2), {})
    grant = Grant("team", admitted=True, places=places)
    assert (grant.capacity("worker"), grant.free([]).take("worker")) == (2, None)


def test_the_base_that_grew_anew_has_the_pods() -> None:
    old, new = (
        admitted(PAIR.base),
        admitted(f"{PAIR.base}-anew", 2, annotations={REPLACES: f"ml/{PAIR.base}"}),
    )
    assert seen(PAIR, old, new).base is new


def test_every_rule_has_a_row() -> None:
    assert ROWS.keys() == set(rules.RULES)


@pytest.mark.parametrize(
    ("given", "returned"),
    [
        (seen(None, admitted()), True),
        (seen(demand(), admitted(true=EVICTED)), True),
        (seen(demand(ended=True), admitted()), True),
        (seen(demand(), admitted(true=READY), admitted(ONE, true=EVICTED)), True),
        (seen(demand(suspended=True), admitted()), True),
        (seen(demand(), admitted(), lives=RUNS), False),
        (seen(demand(3), admitted(true=READY), lives=RUNS), False),
    ],
)
def test_what_returns_quota_is_known(given: Seen, returned: bool) -> None:
    assert frees(decide(given, NOW)) is returned


@pytest.mark.parametrize(
    ("before", "pods", "reason"),
    [({}, (), "WaitForStart"), ({}, RUNS, "Started"), ({"PodsReady": "Started"}, (), "WaitForRecovery")],
)
def test_kueue_is_told_whether_a_job_starts_or_recovers(
    before: dict[str, str], pods: tuple[Any, ...], reason: str
) -> None:
    [step] = rules.report(seen(demand(), admitted(true=before), lives=pods), NOW)
    [[patch]] = step.groups
    assert isinstance(patch, Patch)
    assert patch.body["status"]["conditions"][-1]["reason"] == reason


def test_growth_that_has_to_wait_is_looked_at_again() -> None:
    assert decide(seen(demand(3), HELD_BACK, lives=RUNS), NOW).again_in == timedelta(seconds=9)


@pytest.mark.parametrize(("before", "after"), [("", 60), ("1", 120), ("5", 1920), ("6", 3600), ("999", 3600)])
def test_slices_that_never_become_ready_are_tried_less_and_less(before: str, after: int) -> None:
    base = admitted(true=READY, annotations={TRIES: before} if before else {})
    plan = decide(seen(demand(2), base, admitted(ONE, true=TOO_LATE)), NOW)
    patches = (each.body for each in plan.actions if isinstance(each, Patch))
    [notes] = [each["metadata"]["annotations"] for each in patches if HELD in str(each)]
    assert notes == {HELD: (NOW + timedelta(seconds=after)).isoformat(), TRIES: str(number(before) + 1)}
    held = admitted(true=READY, annotations=notes)
    assert decide(seen(demand(2), held, lives=RUNS), NOW).again_in == timedelta(seconds=after)


def test_a_slice_is_asked_for_where_the_base_is() -> None:
    template = {**POD, "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}}
    (role,) = demand(2).roles
    given = replace(demand(2), roles=(replace(role, template=template),))
    base = admitted(given.base, true=READY)
    assert not grows(decide(seen(given, base, lives=RUNS), NOW))
    on = domains(given, [life(0, machine="m1")], {"m1": {"rack": "r7"}, "": {}}.__getitem__)
    [made] = manifests(decide(seen(given, base, lives=RUNS, domains=on), NOW))
    assert made["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] == {"rack": "r7"}
    assert "nodeSelector" not in template["spec"]


def test_the_server_itself_is_asked_before_the_place_of_a_pod_that_has_succeeded_is_returned() -> None:
    given = seen(demand(), admitted(), lives=(succeeded(workload=BASE),))
    assert frees(decide(given, NOW))


def test_growth_names_the_machines_of_the_flavour_that_the_base_has() -> None:
    labels = {"f": {"gpu": "a100"}, "g": {"gpu": "h100"}}
    gpus = [
        FLAVOR.convert({"metadata": {"name": f}, "spec": {"nodeLabels": has}}) for f, has in labels.items()
    ]
    found = seen(demand(2), admitted(true=READY), lives=RUNS)
    known = market([flavored("all", {"g": "4", "f": "4"})], found.workloads, flavors=gpus)
    [made] = manifests(decide(replace(found, market=known), NOW))
    [pods] = made["spec"]["podSets"]
    assert pods["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
