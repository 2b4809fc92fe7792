"""How pods end, from their status, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.last_words import last_error
from elasticjob.controllers.nodes.exits import Exit, ending
from elasticjob.kube.objects.views import POD
from elasticjob.sizing.exits import CONSEQUENCES, ExitReason, of_code, of_status

CODES = [
    (0, ExitReason.SUCCEEDED),
    (1, ExitReason.FATAL_ERROR),
    (14, ExitReason.HARDWARE_ERROR),
    (75, ExitReason.RUN_AGAIN),
    (2, ExitReason.FATAL_ERROR),
    (126, ExitReason.CANNOT_START),
    (127, ExitReason.CANNOT_START),
    (128, ExitReason.CRASHED),
    (134, ExitReason.CRASHED),
    (137, ExitReason.KILLED),
    (139, ExitReason.CRASHED),
    (143, ExitReason.KILLED),
    (201, ExitReason.HARDWARE_ERROR),
    (202, ExitReason.HARDWARE_ERROR),
    (247, ExitReason.OOM_KILLED),
]
SIGNALS = [
    (-6, ExitReason.CRASHED),
    (-9, ExitReason.KILLED),
    (-15, ExitReason.KILLED),
    (None, ExitReason.CRASHED),
]


@pytest.mark.parametrize(("status", "reason"), [*CODES, *SIGNALS, (None, ExitReason.CRASHED)])
def test_an_exit_code_has_one_meaning(status: int | None, reason: ExitReason) -> None:
    """Also that of a process, which a signal of its number may have ended."""
    assert of_status(status) is reason
    if status is not None and status >= 0:
        assert of_code(status) is reason


def pod(
    phase: str, terminated: dict[str, Any] | None = None, *, spec: dict[str, Any] | None = None, **status: Any
) -> Any:
    statuses = [{"name": "main", "state": {"terminated": terminated} if terminated else {"running": {}}}]
    containers = [{"name": "proxy"}, {"name": "main", "resources": {"limits": {"memory": "4Gi"}}}]
    return POD.convert(
        {
            "metadata": {"name": "digits-worker-0"},
            "spec": {"containers": containers, **(spec or {})},
            "status": {"phase": phase, "containerStatuses": statuses, **status},
        }
    )


def initial(*ends: dict[str, Any], spec: dict[str, Any] | None = None) -> Any:
    """A pod whose init containers ended so, so that its main container never ran."""
    waits = [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]
    statuses = [{"name": end.pop("name"), "state": {"terminated": end}} for end in map(dict, ends)]
    return pod("Failed", containerStatuses=waits, initContainerStatuses=statuses, spec=spec)


def end_of(given: Any) -> Exit:
    found = ending(given)
    assert found is not None
    return found


def evicted(ended: str) -> Any:
    """A pod that was evicted at 12:00, whose main container ended with 0."""
    target = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    end = {"exitCode": 0, "finishedAt": f"2026-01-01T{ended}"}
    return pod("Failed", end, reason="Evicted", conditions=[target])


STOPPED = '{"reason": "Left", "message": "SIGTERM"}'
STORAGE = 'Container main exceeded its local ephemeral storage limit "1Gi".'
DEADLINE = "Pod was active on the node longer than the specified deadline"


def late(code: int, ended: str = "01:09") -> Any:
    """A pod that may run for a minute from 12:00 on."""
    end = {"exitCode": code, "finishedAt": f"2026-01-01T12:{ended}Z"}
    spec = {"activeDeadlineSeconds": 60}
    status = {"reason": "DeadlineExceeded", "message": DEADLINE, "startTime": "2026-01-01T12:00:00Z"}
    return pod("Failed", end, spec=spec, **status)


def probed(code: int, **end: Any) -> Any:
    """A pod whose main container has a probe that kills."""
    main = {"name": "main", "livenessProbe": {}, "resources": {"limits": {"memory": "4Gi"}}}
    return pod("Failed", {"exitCode": code, **end}, spec={"containers": [main]})


ENDINGS: list[tuple[str, Any, str]] = [
    ("OOM by the kubelet", pod("Failed", {"exitCode": 137, "reason": "OOMKilled"}), "OOMKilled at 4Gi"),
    ("OOM by the agent's words",
     pod("Failed", {"exitCode": 137, "reason": "Error", "message": '{"reason": "OOMKilled"}'}),
     "OOMKilled at 4Gi"),
    ("an error with the agent's words",
     pod("Failed",
         {"exitCode": 1, "message": '{"reason": "WorkerFailed", "message": "ValueError: no data"}'}),
     "exit code 1: ValueError: no data"),
    ("an error with any words: the last line",
     pod("Failed", {"exitCode": 3, "message": "Traceback\n  File x\nKeyError: 'a'\n\n"}),
     "exit code 3: KeyError: 'a'"),
    ("a kill", pod("Failed", {"exitCode": 137, "reason": "Error"}), "killed by SIGKILL (exit code 137)"),
    ("run me again", pod("Failed", {"exitCode": 75}), "asked to be run again (exit code 75)"),
    ("an eviction, whatever the code",
     pod("Failed", {"exitCode": 1}, reason="Evicted", message="The node was low on memory."),
     "taken away by the cluster: The node was low on memory."),
    ("a preemption",
     pod("Failed", {"exitCode": 143}, conditions=[{"type": "DisruptionTarget", "status": "True"}]),
     "taken away by the cluster"),
    ("an end before it ran", pod("Failed", reason="NodeAffinity", message="Pod was rejected"),
     "failed before it ran: Pod was rejected"),
    ("a machine that had no room left when the pod came",
     pod("Failed", reason="OutOfnvidia.com/gpu", message="Pod was rejected"),
     "taken away by the cluster: Pod was rejected"),
    ("an init container that failed",
     initial({"name": "fetch", "exitCode": 0}, {"name": "unpack", "exitCode": 3, "message": "tar: no space"}),
     "init container unpack: exit code 3: tar: no space"),
    ("an init container that failed beside a sidecar, which was stopped then",
     initial({"name": "mesh", "exitCode": 143},
             {"name": "fetch", "exitCode": 3, "message": "no such bucket"},
             spec={"initContainers": [{"name": "mesh", "restartPolicy": "Always"}, {"name": "fetch"}]}),
     "init container fetch: exit code 3: no such bucket"),
    ("an agent that was told to go",
     pod("Succeeded", {"exitCode": 0, "message": STOPPED}),
     "left before the end: SIGTERM"),
    ("success", pod("Succeeded", {"exitCode": 0}), "succeeded"),
    ("the main container ends the pod", pod("Running", {"exitCode": 2}), "exit code 2"),
    ("success beside a container that goes on", pod("Running", {"exitCode": 0}), "succeeded"),
    ("success beside a container that failed", pod("Failed", {"exitCode": 0}), "succeeded"),
    ("an agent that was told to go beside a container that goes on",
     pod("Running", {"exitCode": 0, "message": STOPPED}),
     "left before the end: SIGTERM"),
    ("a program that the runtime does not find",
     pod("Failed", {"exitCode": 128, "reason": "StartError", "message": 'exec: "trian": not found'}),
     'exit code 128: exec: "trian": not found'),
    ("an eviction for its own storage",
     pod("Failed", {"exitCode": 137}, reason="Evicted",
         message='Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". '),
     'over a limit of its own: Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".'),
    ("an agent that an eviction for its own storage stopped",
     pod("Failed", {"exitCode": 0, "message": STOPPED}, reason="Evicted", message=STORAGE),
     f"over a limit of its own: {STORAGE}"),
    ("a machine under pressure that does not admit it",
     pod("Failed", reason="Evicted", message="The node had condition: [MemoryPressure]. "),
     "taken away by the cluster: The node had condition: [MemoryPressure]."),
    ("its deadline", late(143), f"over a limit of its own: {DEADLINE}"),
    ("success after its deadline, on SIGTERM", late(0, "01:01"), f"over a limit of its own: {DEADLINE}"),
    ("success before its deadline", late(0, "00:59"), "succeeded"),
    ("a probe", probed(137), "killed by SIGKILL (exit code 137), as by the kubelet after failed probes"),
    ("an agent that a probe stopped", probed(0, message=STOPPED),
     "exit code 0, as by the kubelet after failed probes: SIGTERM"),
    ("out of memory by the agent's words, with a probe", probed(137, message='{"reason": "OOMKilled"}'),
     "OOMKilled at 4Gi"),
    ("a container that a reboot lost, with a probe", probed(137, reason="ContainerStatusUnknown"),
     "killed by SIGKILL (exit code 137)"),
    ("out of memory, with a probe", probed(137, reason="OOMKilled"), "OOMKilled at 4Gi"),
    ("an error, with a probe", probed(3), "exit code 3"),
    ("success, with a probe", probed(0), "succeeded"),
    ("success before an eviction", evicted(ended="11:59:59Z"), "succeeded"),
    ("code 0 because of an eviction", evicted(ended="12:00:01Z"), "taken away by the cluster"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "given", "sentence"), ENDINGS, ids=[case for case, _, _ in ENDINGS])
def test_an_end_is_told_in_a_sentence(case: str, given: Any, sentence: str) -> None:
    assert end_of(given).sentence == sentence


@pytest.mark.parametrize(
    "terminated",
    [
        {"exitCode": 128, "reason": "StartError"},
        {"exitCode": 1, "reason": "Error", "message": '{"reason": "CannotStart", "message": "no module"}'},
    ],
)
def test_a_program_that_runtime_or_agent_cannot_start_has_not_crashed(terminated: Any) -> None:
    assert end_of(pod("Failed", terminated)).reason is ExitReason.CANNOT_START


def test_a_pod_that_runs_has_not_ended() -> None:
    assert ending(pod("Running")) is None


def test_every_reason_has_a_consequence() -> None:
    assert set(CONSEQUENCES) == set(ExitReason)


def test_kills_and_evictions_are_free() -> None:
    free = {reason for reason, consequence in CONSEQUENCES.items() if not consequence.counts}
    assert free == {ExitReason.SUCCEEDED, ExitReason.TAKEN_AWAY, ExitReason.KILLED, ExitReason.RUN_AGAIN}


def test_words_that_are_no_error_are_not_told() -> None:
    assert last_error('{"verdict": "Stopped"}') == ""
    assert last_error('{"message": ' + "[" * 4000) == ""
    odd = pod("Failed", {"exitCode": 3, "message": '{"reason": ["CannotStart"], "message": {}}'})
    assert end_of(odd).sentence == "exit code 3"
    assert Exit(ExitReason.KILLED, 143, words="").sentence == "killed by SIGTERM (exit code 143)"


def test_the_limit_is_the_one_that_was_in_force_whatever_the_spec_asks_for_since() -> None:
    killed = {
        "name": "main",
        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        "resources": {"limits": {"memory": "2Gi"}},
    }
    assert end_of(pod("Failed", containerStatuses=[killed])).sentence == "OOMKilled at 2Gi"
