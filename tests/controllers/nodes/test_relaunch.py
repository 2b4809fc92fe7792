"""What should happen to a node next, from its lives."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

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


@pytest.mark.parametrize(
    ("case", "lives", "restart", "standing"), STANDINGS, ids=[case[0] for case in STANDINGS]
)
def test_standing(case: str, lives: tuple[Life, ...], restart: RestartPolicy, standing: Standing) -> None:
    assert Node("worker", 0, lives).standing(Policy(restart, 3), NOW) is standing


TOLD = NOW - timedelta(minutes=5)


@pytest.mark.parametrize(
    ("case", "node", "restart", "standing"),
    [
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
    ],
)  # fmt: skip
def test_what_a_node_achieved_outlives_its_pods(
    case: str, node: Node, restart: RestartPolicy, standing: Standing
) -> None:
    assert node.standing(Policy(restart, 3), NOW) is standing


END: Final = {"terminated": {"exitCode": 0}}
RUNS: Final[dict[str, Any]] = {"running": {}}


@pytest.mark.parametrize(
    ("phase", "states", "sidecar", "lingers", "over"),
    [
        ("Running", {"main": RUNS, "proxy": RUNS}, "", False, False),
        ("Running", {"main": END, "proxy": RUNS}, "", True, False),
        ("Running", {"main": END}, "", True, False),  # nothing is known of the other
        ("Running", {"main": END, "proxy": END}, "", False, True),  # the kubelet says later that it is over
        ("Running", {"main": END, "proxy": END}, "mesh", True, False),
        ("Failed", {"main": END}, "", False, True),
    ],
)
def test_a_pod_is_over_when_all_its_containers_are(
    phase: str, states: dict[str, Any], sidecar: str, lingers: bool, over: bool
) -> None:
    sidecars = [{"name": sidecar, "restartPolicy": "Always"}] if sidecar else []
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    made = POD.convert(
        {
            "metadata": {"name": "digits-worker-0", "labels": names.pod_labels("digits", "worker", 0, 0)},
            "spec": {
                "containers": [{"name": "proxy"}, {"name": "main"}],
                "initContainers": [{"name": "first"}, *sidecars],
            },
            "status": {
                "phase": phase,
                "containerStatuses": statuses,
                "initContainerStatuses": [{"name": each["name"], "state": RUNS} for each in sidecars],
            },
        }
    )
    found = life_of(made, machines=())
    assert found is not None
    assert (found.lingers, found.over) == (lingers, over)


HEALTH: list[tuple[Any, str]] = [
    (None, ""),
    ([], ""),
    ([{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1", "health": "Healthy"}]}], ""),
    ([{"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1", "health": "Unknown"}]}], ""),
    ([{"name": "nvidia.com/gpu", "resources": None}], ""),
    (
        [
            {
                "name": "nvidia.com/gpu",
                "resources": [
                    {"resourceID": "GPU-2", "health": "Unhealthy"},
                    {"resourceID": "GPU-1", "health": "Healthy"},
                ],
            },
            {"name": "claim:net/nic", "resources": [{"resourceID": "nic0", "health": "Unhealthy"}]},
        ],
        "claim:net/nic nic0, nvidia.com/gpu GPU-2",
    ),
]


RESIZES: list[tuple[str, Any, str]] = [
    ("none", {"observedGeneration": 3}, ""),
    ("servers that do not count", {}, ""),
    ("not seen yet", {"observedGeneration": 2}, "the kubelet has not resized it yet"),
    ("going on", {"conditions": [{"type": "PodResizeInProgress", "status": "True"}]},
     "the kubelet has not resized it yet"),
    ("done", {"conditions": [{"type": "PodResizeInProgress", "status": "False", "message": "x"}]}, ""),
    ("in use",
     {"conditions": [{"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "x"}]},
     "the kubelet has not resized it: x"),
    ("no room", {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]},
     "the kubelet has not resized it: Deferred"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "why"), [row[1:] for row in RESIZES], ids=[row[0] for row in RESIZES])
def test_a_resize_that_is_not_carried_out(status: Any, why: str) -> None:
    about = {"name": "w", "generation": 3, "labels": names.pod_labels("digits", "worker", 0, 0)}
    found = life_of(POD.convert({"metadata": about, "status": status}), machines=())
    assert found is not None
    assert found.unresized == why


@pytest.mark.parametrize(("grace", "told"), [(5, NOW - timedelta(seconds=5)), (0, None)])
def test_the_kubelets_own_deletion_does_not_say_when_a_pod_was_told(
    grace: int, told: datetime | None
) -> None:
    """It deletes what has ended without grace, which makes that the time of the deletion."""
    about = {
        "name": "w",
        "labels": names.pod_labels("digits", "worker", 0, 0),
        "deletionTimestamp": timestamp(NOW),
        "deletionGracePeriodSeconds": grace,
    }
    found = life_of(POD.convert({"metadata": about}), machines=())
    assert found is not None
    assert found.deleted_at == told


@pytest.mark.parametrize(("status", "broken"), HEALTH)
def test_devices_that_the_kubelet_calls_unhealthy(status: Any, broken: str) -> None:
    about = {"name": "main", "state": {"running": {}}, "allocatedResourcesStatus": status}
    made = POD.convert(
        {
            "metadata": {"name": "digits-worker-0", "labels": names.pod_labels("digits", "worker", 0, 0)},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [about]},
        }
    )
    found = life_of(made, machines=())
    assert found is not None
    assert found.broken == broken


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


def test_restarts_are_the_larger_of_pods_and_status() -> None:
    assert Node("worker", 0, (ended(restarts_before=1),)).restarts == 2
    assert Node("worker", 0, (ended(restarts_before=1),), remembered=5).restarts == 5
    assert Node("worker", 0, (), remembered=2).restarts == 2
    assert Node("worker", 0, (ended(code=137, restarts_before=1),)).restarts == 1
    assert Node("worker", 0, (ended(terminating=True),)).restarts == 0


def test_the_next_life_follows_the_highest_number() -> None:
    assert Node("worker", 0).next_relaunch == 0
    assert Node("worker", 0, (ended(), ended(relaunch=4))).next_relaunch == 5
    assert Node("worker", 0, relaunch=3).next_relaunch == 3
    assert Node("worker", 0, (life(relaunch=3),)).next_number == 3
    assert Node("worker", 0, (life(relaunch=3, lost=True),)).next_number == 4
    ends = (ended(relaunch=3, terminating=told) for told in (True, False))
    assert [Node("worker", 0, (each,)).next_number for each in ends] == [3, 4]


def test_broken_hardware_is_avoided() -> None:
    lives = (
        ended(code=201, machine="m1"),
        ended(relaunch=1, code=1, machine="m2"),
        ended(relaunch=2, code=202, machine="m3"),
    )
    assert Node("worker", 0, lives).machines_to_avoid == ("m1", "m3")


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


def test_machines_that_took_a_pod_away_soon_are_left_if_there_are_others() -> None:
    taken = [ended(0, n, 137, machine=f"m{n}") for n in range(2)]
    assert Node("worker", 0, (*taken, ended(0, 2, 75), ended(0, 3, 1))).machines_to_leave == ("m0", "m1")
    assert Node("worker", 0, (ended(code=137, lived=LONG),)).machines_to_leave == ()


def test_a_pause_counts_from_the_end() -> None:
    node = Node("worker", 0, (ended(relaunch=2, restarts_before=2, at=NOW - timedelta(seconds=3)),))
    assert node.due(NOW) == NOW + timedelta(seconds=1)


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
