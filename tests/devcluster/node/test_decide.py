"""The kubelet's decisions, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.devcluster.node.pod.decide import Kill, Remove, Rules, Start, Stop
from elasticjob.devcluster.node.pod.life import Backoff
from elasticjob.devcluster.quantity import parse_all
from elasticjob.kube.objects.views import Quantity, Resources
from lab.virtual.kubelet import SECOND, START, VirtualKubelet, pod, restarted_at


def test_containers_start_at_once_and_the_pod_runs() -> None:
    kubelet = VirtualKubelet(pod({}, {}))
    assert kubelet.done == [Start("c0"), Start("c1")]
    assert kubelet.phase == "Running"
    assert kubelet.condition("Ready") == ("True", "")


@pytest.mark.parametrize(
    ("policy", "code", "state", "phase"),
    [
        ("Never", 0, "terminated Completed 0", "Succeeded"),
        ("Never", 3, "terminated Error 3", "Failed"),
        ("OnFailure", 0, "terminated Completed 0", "Succeeded"),
        ("OnFailure", 3, "running", "Running"),
        ("Always", 0, "running", "Running"),
        ("Always", 3, "running", "Running"),
    ],
)
def test_restart_policy(policy: str, code: int, state: str, phase: str) -> None:
    kubelet = VirtualKubelet(pod(restartPolicy=policy))
    kubelet.exits("c0", code)
    assert (kubelet.state("c0"), kubelet.phase) == (state, phase)


def test_first_restart_is_at_once_then_waits_double() -> None:
    kubelet = VirtualKubelet(pod())
    waits = []
    for _ in range(8):
        kubelet.exits("c0", 1)
        before = kubelet.now
        while not kubelet.alive:
            assert kubelet.state("c0") == "CrashLoopBackOff"
            kubelet.after(1)
        waits.append((kubelet.now - before).total_seconds())
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert kubelet.status["containerStatuses"][0]["restartCount"] == 8
    assert kubelet.reasons.count("BackOff") == 7


def test_back_off_is_forgiven_after_a_long_run() -> None:
    kubelet = VirtualKubelet(pod(), Rules(restart=Backoff(SECOND, 4 * SECOND)))
    for _ in range(3):
        kubelet.exits("c0", 1)
        kubelet.after(4)
    kubelet.after(8)
    kubelet.exits("c0", 1)
    assert kubelet.alive == ["c0"]
    kubelet.exits("c0", 1)
    assert kubelet.alive == []
    kubelet.after(1)
    assert kubelet.alive == ["c0"]


def test_init_containers_run_one_after_the_other() -> None:
    kubelet = VirtualKubelet(pod({}, init=({}, {})))
    assert kubelet.alive == ["i0"]
    assert (kubelet.phase, kubelet.state("c0")) == ("Pending", "PodInitializing")
    assert kubelet.condition("Initialized") == ("False", "ContainersNotInitialized")
    kubelet.exits("i0", 0)
    assert kubelet.alive == ["i1"]
    kubelet.exits("i1", 0)
    assert kubelet.alive == ["c0"]
    assert kubelet.phase == "Running"
    assert kubelet.condition("Initialized") == ("True", "")


@pytest.mark.parametrize(
    ("policy", "alive", "phase"),
    [("Never", [], "Failed"), ("OnFailure", ["i0"], "Pending"), ("Always", ["i0"], "Pending")],
)
def test_failed_init_container(policy: str, alive: list[str], phase: str) -> None:
    kubelet = VirtualKubelet(pod({}, init=({},), restartPolicy=policy))
    kubelet.exits("i0", 1)
    assert (kubelet.alive, kubelet.phase) == (alive, phase)


def test_sidecar_starts_first_and_stops_last() -> None:
    kubelet = VirtualKubelet(pod({}, init=({"restartPolicy": "Always"}, {}), restartPolicy="Never"))
    assert kubelet.alive == ["i0", "i1"]
    kubelet.exits("i1", 0)
    assert kubelet.alive == ["i0", "c0"]
    kubelet.exits("c0", 0)
    assert kubelet.phase == "Running"
    assert kubelet.done[-1] == Stop("i0")
    kubelet.exits("i0", 143)
    assert kubelet.phase == "Succeeded"


def test_sidecar_that_dies_is_restarted_even_in_a_pod_that_never_restarts() -> None:
    kubelet = VirtualKubelet(pod({}, init=({"restartPolicy": "Always"},), restartPolicy="Never"))
    kubelet.exits("i0", 1)
    assert kubelet.alive == ["i0", "c0"]


def test_deleted_pod_is_stopped_then_killed_when_its_grace_is_over_then_removed() -> None:
    kubelet = VirtualKubelet(pod({}, {}))
    kubelet.delete(grace=5)
    assert kubelet.done[2:] == [Stop("c0"), Stop("c1")]
    kubelet.exits("c0", 0)
    kubelet.after(4.9)
    assert not kubelet.removed
    kubelet.after(0.1)
    assert kubelet.done[4:6] == [Kill("c1"), Remove()]
    assert kubelet.phase == "Failed"


def test_a_second_delete_shortens_the_grace() -> None:
    kubelet = VirtualKubelet(pod())
    kubelet.delete(grace=30)
    kubelet.after(1)
    kubelet.delete(grace=1)
    kubelet.after(1)
    assert Kill("c0") in kubelet.done


def test_sidecars_of_a_deleted_pod_stop_in_reverse_order_after_the_rest() -> None:
    sidecar = {"restartPolicy": "Always"}
    kubelet = VirtualKubelet(pod({}, init=(sidecar, sidecar)))
    kubelet.delete()
    assert kubelet.done[3:] == [Stop("c0")]
    kubelet.exits("c0", 0)
    assert kubelet.done[4:] == [Stop("i1")]
    kubelet.exits("i1", 0)
    assert kubelet.done[5:] == [Stop("i0")]
    kubelet.exits("i0", 0)
    assert kubelet.removed


def test_deleted_pod_that_never_started_is_removed_at_once() -> None:
    kubelet = VirtualKubelet(pod({"image": "nowhere/none"}))
    kubelet.delete()
    assert kubelet.removed


def test_unknown_image_is_tried_again_with_back_off() -> None:
    kubelet = VirtualKubelet(pod({"image": "nowhere/none:1"}))
    assert kubelet.state("c0") == "ErrImagePull"
    kubelet.after(1)
    assert kubelet.state("c0") == "ImagePullBackOff"
    kubelet.after(9)
    assert kubelet.state("c0") == "ErrImagePull"
    kubelet.after(19)
    assert kubelet.state("c0") == "ImagePullBackOff"
    kubelet.change(image="python:3.12")
    assert kubelet.state("c0") == "running"
    assert kubelet.phase == "Running"


def test_active_deadline_ends_the_pod() -> None:
    kubelet = VirtualKubelet(pod(activeDeadlineSeconds=60, terminationGracePeriodSeconds=5))
    kubelet.after(59)
    assert kubelet.phase == "Running"
    kubelet.after(1)
    assert (kubelet.phase, kubelet.status["reason"]) == ("Failed", "DeadlineExceeded")
    assert kubelet.done[-1] == Stop("c0")
    kubelet.after(5)
    assert not kubelet.alive
    assert not kubelet.removed


def test_deadline_after_the_end_changes_nothing() -> None:
    kubelet = VirtualKubelet(pod(activeDeadlineSeconds=60, restartPolicy="Never"))
    kubelet.exits("c0", 0)
    kubelet.after(100)
    assert kubelet.phase == "Succeeded"


READINESS: dict[str, Any] = {
    "readinessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 2, "failureThreshold": 2}
}


def test_readiness_follows_its_probe() -> None:
    kubelet = VirtualKubelet(pod(READINESS))
    assert kubelet.condition("Ready") == ("False", "ContainersNotReady")
    kubelet.probes["c0", "readiness"] = True
    kubelet.after(2)
    assert kubelet.condition("Ready") == ("True", "")
    kubelet.probes["c0", "readiness"] = False
    kubelet.after(2)
    assert kubelet.condition("Ready") == ("True", "")
    kubelet.after(2)
    assert kubelet.condition("Ready") == ("False", "ContainersNotReady")
    assert kubelet.alive == ["c0"]


def test_liveness_failure_restarts_the_container() -> None:
    probe = {"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 3}
    kubelet = VirtualKubelet(pod({"livenessProbe": probe}, terminationGracePeriodSeconds=2))
    kubelet.probes["c0", "liveness"] = True
    kubelet.after(10)
    assert kubelet.done.count(Stop("c0")) == 0
    kubelet.probes["c0", "liveness"] = False
    kubelet.after(3)
    assert kubelet.done.count(Stop("c0")) == 1
    kubelet.after(2)
    assert kubelet.status["containerStatuses"][0]["restartCount"] == 1


def test_startup_probe_holds_back_the_others() -> None:
    probe = {"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 30}
    kubelet = VirtualKubelet(pod({"startupProbe": probe, "livenessProbe": {**probe, "failureThreshold": 1}}))
    kubelet.after(10)
    assert not kubelet.has_started()
    kubelet.probes["c0", "startup"] = kubelet.probes["c0", "liveness"] = True
    kubelet.after(1)
    assert kubelet.has_started()
    kubelet.probes["c0", "liveness"] = False
    kubelet.after(1)
    assert Stop("c0") in kubelet.done


def test_resize_takes_effect_in_place() -> None:
    small: dict[str, Quantity] = {"memory": "1Gi"}
    large: dict[str, Quantity] = {"memory": "2Gi"}
    kubelet = VirtualKubelet(pod({"resources": {"requests": small, "limits": small}}))
    kubelet.change(resources=Resources(requests=large, limits=large))
    shown = kubelet.status["containerStatuses"][0]
    assert (shown["resources"]["limits"], shown["allocatedResources"]) == (large, large)
    assert shown["restartCount"] == 0


def test_resize_below_present_use_is_tried_again() -> None:
    kubelet = VirtualKubelet(pod({"resources": {"limits": {"memory": "2Gi"}}}))
    kubelet.refuse_resize = "uses more"
    kubelet.change(resources=Resources(limits={"memory": "1Gi"}))
    assert kubelet.condition("PodResizeInProgress") == ("True", "Error")
    assert kubelet.status["containerStatuses"][0]["resources"]["limits"] == {"memory": "2Gi"}
    kubelet.refuse_resize = ""
    kubelet.after(5)
    assert kubelet.condition("PodResizeInProgress") == ("", "")
    assert kubelet.status["containerStatuses"][0]["resources"]["limits"] == {"memory": "1Gi"}


def test_resize_beyond_the_node_is_infeasible() -> None:
    kubelet = VirtualKubelet(pod(), Rules(capacity=parse_all({"cpu": "2"})))
    kubelet.change(resources=Resources(requests={"cpu": "3"}))
    assert kubelet.condition("PodResizePending") == ("True", "Infeasible")


def test_resize_policy_may_ask_for_a_restart() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    kubelet = VirtualKubelet(pod({"resizePolicy": policy}))
    kubelet.change(resources=Resources(limits={"memory": "1Gi"}))
    assert kubelet.done[-1] == Stop("c0")
    kubelet.exits("c0", 143)
    shown = kubelet.status["containerStatuses"][0]
    assert (shown["resources"]["limits"], shown["restartCount"]) == ({"memory": "1Gi"}, 1)


def test_out_of_memory_shows_as_such() -> None:
    kubelet = VirtualKubelet(pod(restartPolicy="Never"))
    kubelet.exits("c0", 137, "OOMKilled")
    assert (kubelet.state("c0"), kubelet.phase) == ("terminated OOMKilled 137", "Failed")


def test_new_kubelet_counts_what_ran_before_as_lost() -> None:
    kubelet = VirtualKubelet(pod(restartPolicy="Never"))
    fresh = restarted_at(kubelet, START + 60 * SECOND)
    assert fresh.state("c0") == "terminated ContainerStatusUnknown 137"
    assert fresh.phase == "Failed"


def test_new_kubelet_leaves_finished_pods_alone() -> None:
    kubelet = VirtualKubelet(pod(restartPolicy="Never"))
    kubelet.exits("c0", 0)
    fresh = restarted_at(kubelet, START + 60 * SECOND)
    assert (fresh.phase, fresh.alive) == ("Succeeded", [])


def test_transition_times_move_only_with_the_status() -> None:
    kubelet = VirtualKubelet(pod())
    first = kubelet.status["conditions"]
    kubelet.after(10)
    assert kubelet.status["conditions"] == first


@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    inits=st.lists(st.sampled_from(["", "Always"]), max_size=2),
    count=st.integers(1, 2),
    story=st.lists(st.tuples(st.sampled_from(["exit", "wait", "delete"]), st.integers(0, 3)), max_size=12),
)
def test_any_story_keeps_the_invariants(
    policy: str, inits: list[str], count: int, story: list[tuple[str, int]]
) -> None:
    init = tuple({"restartPolicy": each} if each else {} for each in inits)
    kubelet = VirtualKubelet(pod(*({} for _ in range(count)), init=init, restartPolicy=policy))
    phases = [kubelet.phase]
    for what, number in story:
        if what == "exit" and kubelet.alive:
            kubelet.exits(kubelet.alive[number % len(kubelet.alive)], number)
        elif what == "wait":
            kubelet.after(number * 20)
        elif what == "delete":
            kubelet.delete(grace=number)
        phases.append(kubelet.phase)
    finished = [phase for phase in phases if phase in ("Succeeded", "Failed")]
    first = next((i for i, phase in enumerate(phases) if phase in ("Succeeded", "Failed")), len(phases))
    assert len(set(finished)) <= 1, "a finished pod never changes its end"
    assert phases[first:] == finished, "a finished pod stays finished"
    kubelet.delete(grace=1)
    kubelet.after(10)
    assert kubelet.removed, "a deleted pod is gone after its grace, whatever happened before"
    assert kubelet.alive == []
