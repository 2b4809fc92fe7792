"""What should happen to a node next, from its lives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import RestartPolicy
from elasticjob.api.v1alpha1.jobresource import JobResourceStatus
from elasticjob.controllers.nodes.relaunch import Life, Node, Policy, Standing, life_of, nodes, start
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.views import POD
from lab.build.jobs import LONG_AGO, NOW, ended, life, oom, pending

DUE, PAUSES, SPENT = Standing.DUE, Standing.PAUSES, Standing.SPENT
ON_FAILURE, NEVER = RestartPolicy.ON_FAILURE, RestartPolicy.NEVER
ALWAYS, EXIT_CODE = RestartPolicy.ALWAYS, RestartPolicy.EXIT_CODE

STANDINGS: list[tuple[str, tuple[Life, ...], RestartPolicy, Standing]] = [
    ("never lived", (), ON_FAILURE, DUE),
    ("runs", (life(),), ON_FAILURE, Standing.RUNS),
    ("pends", (pending(),), ON_FAILURE, Standing.RUNS),
    ("deleted and still there", (life(terminating=True),), ON_FAILURE, Standing.LEAVES),
    (
        "deleted, another container goes on",
        (ended(terminating=True, lingers=True),),
        ON_FAILURE,
        Standing.LEAVES,
    ),
    ("deleted, all over, held by others' finalizer", (ended(terminating=True),), ON_FAILURE, DUE),
    ("deleted, ended well on the way out", (ended(code=0, terminating=True),), ON_FAILURE, DUE),
    ("deleted on a machine that is gone", (life(terminating=True, lost=True),), ON_FAILURE, DUE),
    ("its machine is gone", (life(lost=True),), ON_FAILURE, DUE),
    (
        "an old life leaves while the new one runs",
        (life(terminating=True), life(relaunch=1)),
        ON_FAILURE,
        Standing.RUNS,
    ),
    ("succeeded", (ended(code=0),), ON_FAILURE, Standing.DONE),
    ("succeeded under Always", (ended(code=0),), ALWAYS, DUE),
    ("succeeded just now under Always", (ended(code=0, at=NOW),), ALWAYS, PAUSES),
    ("could not start", (ended(code=127),), ON_FAILURE, DUE),
    ("could not start twice", (ended(code=127), ended(0, 1, 127, restarts_before=1)), ON_FAILURE, SPENT),
    ("failed, then could not start", (ended(), ended(0, 1, 127, restarts_before=1)), ON_FAILURE, DUE),
    ("ExitCode: could not start", (ended(code=127),), EXIT_CODE, SPENT),
    ("failed once", (ended(code=1),), ON_FAILURE, DUE),
    ("failed just now, the second time", (ended(relaunch=1, restarts_before=1, at=NOW),), ON_FAILURE, PAUSES),
    ("the budget is spent", (ended(relaunch=3, restarts_before=3),), ON_FAILURE, SPENT),
    ("killed after the budget was spent", (ended(relaunch=3, restarts_before=3, code=137),), ON_FAILURE, DUE),
    ("Never: an error", (ended(code=1),), NEVER, SPENT),
    ("Never: a kill", (ended(code=137),), NEVER, SPENT),
    ("Never: its machine is gone", (life(lost=True),), NEVER, DUE),
    ("ExitCode: below 128", (ended(code=1),), EXIT_CODE, SPENT),
    ("ExitCode: a crash", (ended(code=139),), EXIT_CODE, DUE),
    ("ExitCode: out of memory", (oom(),), EXIT_CODE, DUE),
    ("ExitCode: run me again", (ended(code=75),), EXIT_CODE, DUE),
]


TOLD = NOW - timedelta(minutes=5)
ACHIEVED: list[tuple[str, Node, RestartPolicy, Standing]] = [
    ("the pod that succeeded is gone", Node("w", 0, completed=True), ON_FAILURE, Standing.DONE),
    ("the same under Always", Node("w", 0, completed=True), ALWAYS, DUE),
    ("the pod that failed for good is gone", Node("w", 0, failed=True), ON_FAILURE, SPENT),
    ("it has another pod", Node("w", 0, (life(),), failed=True), ON_FAILURE, Standing.RUNS),
    ("deleted after it had succeeded", Node("w", 0, (ended(code=0, terminating=True, deleted_at=TOLD),)),
     ON_FAILURE, Standing.DONE),
    ("ended well within the second in which it was deleted",
     Node("w", 0, (ended(code=0, at=TOLD, terminating=True, deleted_at=TOLD),)), ON_FAILURE, DUE),
    ("ended well because it was deleted",
     Node("w", 0, (ended(code=0, at=NOW, terminating=True, deleted_at=TOLD),)), ON_FAILURE, DUE),
]  # fmt: skip
BY_LIVES = [(Node("worker", 0, lives), *rest) for _, lives, *rest in STANDINGS]


@pytest.mark.parametrize(
    ("node", "restart", "standing"),
    [*BY_LIVES, *(row[1:] for row in ACHIEVED)],
    ids=[row[0] for row in (*STANDINGS, *ACHIEVED)],
)
def test_standing(node: Node, restart: RestartPolicy, standing: Standing) -> None:
    assert node.standing(Policy(restart, 3), NOW) is standing


def status(phase: str = "Running", **main: Any) -> dict[str, Any]:
    """The status of a pod whose main container says so."""
    return {"phase": phase, "containerStatuses": [{"name": "main", **main}]}


def containers(phase: str = "Running", **states: Any) -> dict[str, Any]:
    found = [{"name": name, "state": state} for name, state in states.items()]
    return {"phase": phase, "containerStatuses": found}


def resize(type_: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type_, "status": status, **more}]}


def devices(**resources: dict[str, str] | None) -> dict[str, Any]:
    """What a kubelet says about devices, by the kind of them."""
    found = [
        {
            "name": name,
            "resources": health and [{"resourceID": id_, "health": word} for id_, word in health.items()],
        }
        for name, health in resources.items()
    ]
    return status(state=RUNS, allocatedResourcesStatus=found)


END: dict[str, Any] = {"terminated": {"exitCode": 0}}
RUNS: dict[str, Any] = {"running": {}}
FIRST = {"initContainers": [{"name": "first"}]}
MESH = {"initContainers": [{"name": "first"}, {"name": "mesh", "restartPolicy": "Always"}]}
DELETED = {"deletionTimestamp": timestamp(NOW)}
SIDECAR = {"initContainerStatuses": [{"name": "mesh", "state": RUNS}]}
NOT_YET = "the kubelet has not resized it yet"
READ: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "all containers run": (
        {}, {}, containers(main=RUNS, proxy=RUNS), {"lingers": False, "over": False}),
    "another container goes on": ({}, {}, containers(main=END, proxy=RUNS), {"lingers": True, "over": False}),
    "nothing is known of the other": ({}, {}, containers(main=END), {"lingers": True, "over": False}),
    "the kubelet says later that it is over": (
        {}, FIRST, containers(main=END, proxy=END), {"lingers": False, "over": True}),
    "a sidecar goes on": (
        {}, MESH, containers(main=END, proxy=END) | SIDECAR, {"lingers": True, "over": False}),
    "it is over": ({}, {}, containers("Failed", main=END), {"lingers": False, "over": True}),
    "no resize": ({}, {}, {"observedGeneration": 3}, {"unresized": ""}),
    "servers that do not count": ({}, {}, {}, {"unresized": ""}),
    "a resize that is not seen yet": ({}, {}, {"observedGeneration": 2}, {"unresized": NOT_YET}),
    "one that is going on": ({}, {}, resize("PodResizeInProgress"), {"unresized": NOT_YET}),
    "one that is done": ({}, {}, resize("PodResizeInProgress", "False", message="x"), {"unresized": ""}),
    "memory that is in use": (
        {}, {}, resize("PodResizeInProgress", reason="Error", message="x"),
        {"unresized": "the kubelet has not resized it: x"}),
    "no room": (
        {}, {}, resize("PodResizePending", reason="Deferred"),
        {"unresized": "the kubelet has not resized it: Deferred"}),
    "when it was told to end": (
        DELETED | {"deletionGracePeriodSeconds": 5}, {}, {}, {"deleted_at": NOW - timedelta(seconds=5)}),
    "the kubelet deletes what has ended without grace": (
        DELETED | {"deletionGracePeriodSeconds": 0}, {}, {}, {"deleted_at": None}),
    "no word of devices": ({}, {}, status(state=RUNS, allocatedResourcesStatus=None), {"broken": ""}),
    "no devices": ({}, {}, devices(), {"broken": ""}),
    "a healthy one": ({}, {}, devices(gpu={"GPU-1": "Healthy"}), {"broken": ""}),
    "one of unknown health": ({}, {}, devices(gpu={"GPU-1": "Unknown"}), {"broken": ""}),
    "a kind without any": ({}, {}, devices(gpu=None), {"broken": ""}),
    "broken ones": (
        {}, {}, devices(gpu={"GPU-2": "Unhealthy", "GPU-1": "Healthy"}, claim={"nic0": "Unhealthy"}),
        {"broken": "claim nic0, gpu GPU-2"}),
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "spec", "status", "read"), READ.values(), ids=READ)
def test_what_a_pod_says_of_its_life(
    metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any], read: dict[str, Any]
) -> None:
    about = {"name": "digits-worker-0", "generation": 3, "labels": names.pod_labels("digits", "worker", 0, 0)}
    both = {"containers": [{"name": "proxy"}, {"name": "main"}], **spec}
    found = life_of(POD.convert({"metadata": about | metadata, "spec": both, "status": status}), machines=())
    assert {field: getattr(found, field) for field in read} == read


@pytest.mark.parametrize(
    ("lives", "restart", "budget", "reason"),
    [
        ((ended(0, 3, restarts_before=3),), ON_FAILURE, 3, "RestartsSpent"),
        ((ended(),), ON_FAILURE, 0, "PodFailed"),
        ((ended(),), NEVER, 3, "PodFailed"),
        ((ended(),), EXIT_CODE, 3, "PodFailed"),
        ((oom(),), NEVER, 3, "PodFailed"),
        ((oom(0, 3, restarts_before=3),), EXIT_CODE, 3, "OutOfMemory"),
        ((oom(),), ON_FAILURE, 0, "OutOfMemory"),
        ((ended(code=127), ended(0, 1, 127, restarts_before=1)), ON_FAILURE, 3, "CannotStart"),
        ((ended(words='{"reason": "CannotStart", "message": "no data"}'),), ON_FAILURE, 3, "CannotStart"),
    ],
)
def test_the_reason_of_a_lost_node_is_true(
    lives: tuple[Life, ...], restart: RestartPolicy, budget: int, reason: str
) -> None:
    node, policy = Node("worker", 0, lives), Policy(restart, budget)
    assert node.is_spent(policy)
    assert node.why_spent(policy)[0] == reason


FORGIVING = Policy(ON_FAILURE, 3, forgive=timedelta(hours=1))
LONG = timedelta(hours=2)


@pytest.mark.parametrize(
    ("case", "life", "remembered", "charged", "standing"),
    [
        ("spent", ended(0, 3, restarts_before=3), 3, 4, SPENT),
        ("failed after a long life", ended(0, 3, restarts_before=3, lived=LONG), 3, 1, DUE),
        ("killed after a long life", ended(0, 3, 137, restarts_before=3, lived=LONG), 3, 0, DUE),
        ("failed soon after that", ended(0, 4, restarts_before=4, forgiven_before=3), 1, 2, DUE),
        ("the same, with a late status", ended(0, 4, restarts_before=4, forgiven_before=3), 4, 2, DUE),
        ("spent again", ended(0, 6, restarts_before=6, forgiven_before=3), 3, 4, SPENT),
    ],
)
def test_failures_before_a_long_life_are_forgiven(
    case: str, life: Life, remembered: int, charged: int, standing: Standing
) -> None:
    node = Node("worker", 0, (life,), remembered)
    assert (node.charges(FORGIVING), node.standing(FORGIVING, NOW)) == (charged, standing)
    assert node.charges(Policy(ON_FAILURE, 3)) == node.restarts - life.forgiven_before


def of(*lives: Life, **more: Any) -> Node:
    return Node("worker", 0, lives, **more)


TAKEN = tuple(ended(0, n, 137, machine=f"m{n}") for n in range(2))
BROKEN = (ended(code=201, machine="m1"), ended(0, 1, 1, machine="m2"), ended(0, 2, 202, machine="m3"))
NODES: list[tuple[Node, dict[str, Any]]] = [
    (of(ended(restarts_before=1)), {"restarts": 2}),
    (of(ended(restarts_before=1), remembered=5), {"restarts": 5}),  # the larger of pods and status
    (of(remembered=2), {"restarts": 2, "next_relaunch": 0}),
    (of(ended(code=137, restarts_before=1)), {"restarts": 1}),
    (of(ended(terminating=True)), {"restarts": 0}),
    (of(ended(), ended(relaunch=4)), {"next_relaunch": 5}),
    (of(relaunch=3), {"next_relaunch": 3}),
    (of(life(relaunch=3)), {"next_number": 3}),
    (of(life(relaunch=3, lost=True)), {"next_number": 4}),
    (of(ended(relaunch=3, terminating=True)), {"next_number": 3}),
    (of(ended(relaunch=3)), {"next_number": 4}),
    (of(*BROKEN), {"machines_to_avoid": ("m1", "m3")}),
    (of(*TAKEN, ended(0, 2, 75), ended(0, 3, 1)), {"machines_to_leave": ("m0", "m1")}),
    (of(ended(code=137, lived=LONG)), {"machines_to_leave": ()}),
]


@pytest.mark.parametrize(("node", "known"), NODES)
def test_what_is_known_of_a_node(node: Node, known: dict[str, Any]) -> None:
    assert {field: getattr(node, field) for field in known} == known


@pytest.mark.parametrize(
    ("life", "seconds"),
    [
        (ended(), 0),
        (ended(restarts_before=1), 2),
        (ended(restarts_before=2), 4),
        (ended(restarts_before=4), 16),
        (ended(restarts_before=98), 60),
        (ended(restarts_before=2, lived=LONG), 4),
        (ended(code=137), 0),
        (ended(code=137, repeats_before=1), 2),
        (ended(code=75, repeats_before=4), 16),
        (ended(code=137, repeats_before=99), 300),
        (ended(code=137, repeats_before=99, lived=LONG), 0),
        (ended(code=137, repeats_before=99, created=LONG_AGO - LONG), 0),
        (ended(code=0), 10),
        (ended(code=0, repeats_before=9), 10),
        (ended(relaunch=2, restarts_before=2, at=LONG_AGO - timedelta(seconds=3)), 1),  # from its end on
    ],
)
def test_pauses_double(life: Life, seconds: int) -> None:
    assert Node("worker", 0, (life,)).due(NOW) == LONG_AGO + timedelta(seconds=seconds)


def test_pods_that_are_lost_soon_one_after_another_are_made_again_later_and_later() -> None:
    lost = life(lost=True, created=NOW - timedelta(seconds=5), repeats_before=4)
    node, policy = Node("worker", 0, (lost,)), Policy()
    assert node.standing(policy, NOW) is PAUSES
    assert node.due(NOW) == NOW + timedelta(seconds=11)
    assert node.told_repeats(NOW) == "; 5 pods in a row were over within a minute"
    assert node.standing(policy, NOW + timedelta(minutes=1)) is DUE


def test_nodes_are_found_by_pod_and_by_memory() -> None:
    past = JobResourceStatus(restarts={"worker": {"1": 2, "7": 1}}, completed_indexes={"worker": "7,9-x,x"})
    found = nodes((life(1), ended(0), life(0, 1)), past)
    assert {place for place, node in found.items() if node.succeeded} == {("worker", 7)}
    assert {place: (len(node.lives), node.remembered) for place, node in found.items()} == {
        ("worker", 0): (2, 0),
        ("worker", 1): (1, 2),
        ("worker", 7): (0, 1),
    }
    assert found["worker", 0].latest == life(0, 1)


INITIALIZES = {"initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]}


@pytest.mark.parametrize(
    ("spec", "status", "sentence"),
    [
        ({"nodeName": ""}, {}, "Unscheduled: no scheduler has placed it on a node"),
        ({"initContainers": [{"name": "fetch"}]}, INITIALIZES, "PodInitializing: init container fetch runs"),
        ({"initContainers": [{"name": "fetch", "restartPolicy": "Always"}]}, INITIALIZES,
         "ContainerCreating: m1 has not started the pod; see the pod's events"),
        ({"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "lr"}},
                      {"name": "data", "persistentVolumeClaim": {"claimName": "images"}}]}, {},
         "ContainerCreating: m1 has not started the pod, which needs ConfigMap lr, "
         "PersistentVolumeClaim images; see the pod's events"),
        ({"volumes": [{"name": "maybe", "configMap": {"name": "maybe", "optional": True}},
                      {"name": "all",
                       "projected": {"sources": [{"secret": {"name": "key"}}, {"downwardAPI": {}}]}}]}, {},
         "ContainerCreating: m1 has not started the pod, which needs Secret key; see the pod's events"),
    ],
)  # fmt: skip
def test_a_pod_that_is_slow_to_start_tells_what_is_left(
    spec: dict[str, Any], status: dict[str, Any], sentence: str
) -> None:
    assert start(POD.convert({"spec": {"nodeName": "m1", **spec}, "status": status})) == sentence
