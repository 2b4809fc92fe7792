"""How a pod ended, and what follows from it by the table of sizing/exits.py.

`classify` trusts in this order: a limit of its template that the pod exceeded, what the cluster did to it,
what the kubelet says about the main container, its exit code. A kill that nothing explains is that of a probe
where the template has one that kills: no status says so. Containers beside the main one decide nothing,
whether they fail or go on.
Only restartPolicy Always gives a pod that succeeded a successor, and not to nodes that the master waits for.
A failurePolicy changes the consequence of failures that the program is to blame for (`with_consequence`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from elasticjob.api.readings import after, span
from elasticjob.api.v1alpha1.common import FailureAction
from elasticjob.api.v1alpha1.containers import main_container, main_end, main_status
from elasticjob.api.v1alpha1.elasticjob import FailureRule
from elasticjob.api.v1alpha1.last_words import code_in_words, last_error, message_of, words_of
from elasticjob.kube.objects.views import ContainerTerminated, Pod
from elasticjob.sizing.exits import (
    CONSEQUENCES,
    EVEN_NEVER,
    Consequence,
    ExitReason,
    of_code,
)

LEFT = "Left"
"""The reason in an agent's termination message when it was stopped before the training was over."""
INIT_FAILED = "InitContainerFailed"
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun", "CannotStart"})
"""Reasons of a container whose program the runtime, or the agent, could not start."""
TAKEN_AWAY = frozenset(
    {
        "Evicted",
        "Preempting",
        "Shutdown",
        "Terminated",
        "NodeLost",
        "NodeShutdown",
        "UnexpectedAdmissionError",
        "TopologyAffinityError",
        "VolumeAttachmentLimitExceeded",
    }
)
BY_SIGNAL = frozenset({"", "Error", "Completed"})
"""Reasons of a container that a signal ended; one that a reboot took has ContainerStatusUnknown."""
DEADLINE = "DeadlineExceeded"
EVICTED = "Evicted"
OWN_STORAGE = (
    "exceeded its local ephemeral storage limit",
    "Pod ephemeral local storage usage exceeds the total limit",
    "Usage of EmptyDir volume",
)
"""In messages of kubelets that evict a pod for its own use of storage. The reason is also that of an eviction
for the machine's sake, and of a pod that a machine under pressure does not admit."""
NO_ROOM = "OutOf"
"""How the reason begins, such as OutOfcpu, if the kubelet had no room left: another pod came first."""


SUDDEN = frozenset({ExitReason.OOM_KILLED, ExitReason.KILLED})
"""Ends from outside: the last line of the program's log does not explain them."""

BY_RULE: Mapping[FailureAction, Consequence] = MappingProxyType(
    {
        FailureAction.FAIL_JOB: Consequence(frozenset(), counts=True, fails_job=True),
        FailureAction.IGNORE: Consequence(EVEN_NEVER, counts=False),
        FailureAction.COUNT: Consequence(EVEN_NEVER, counts=True),
        FailureAction.RELAUNCH_ELSEWHERE: Consequence(EVEN_NEVER, counts=True, elsewhere=True),
    }
)
WITHOUT_RULES = frozenset(
    {ExitReason.SUCCEEDED, ExitReason.TAKEN_AWAY, ExitReason.OOM_KILLED, ExitReason.RUN_AGAIN}
)
"""Ends that a job's failurePolicy is not asked about."""


@dataclass(frozen=True)
class Exit:
    """The end of one pod. `words` is the whole termination message."""

    reason: ExitReason
    code: int | None = None
    words: str = ""
    memory: str = ""  # the limit under which it ran, as written
    at: datetime | None = None
    started: datetime | None = None
    container: str = ""  # the init container that failed: the training container never ran
    ruled: Consequence | None = None  # by the job's failurePolicy

    @property
    def word(self) -> str:
        """The end as a reason."""
        return INIT_FAILED if self.container else self.reason.value

    @property
    def consequence(self) -> Consequence:
        """The consequence of this end."""
        return self.ruled or CONSEQUENCES[self.reason]

    @property
    def is_final(self) -> bool:
        """Whether the agent says that another start would fail in the same way."""
        return words_of(self.words).get("reason") == ExitReason.CANNOT_START

    @property
    def sentence(self) -> str:
        """The end as a message: `exit code 1: ValueError: x`."""
        last = message_of(self.words) if self.reason in SUDDEN else last_error(self.words)
        return f"{self._fact()}: {last}" if last else self._fact()

    def _fact(self) -> str:
        if self.container:
            return f"init container {self.container}: {code_in_words(self.code)}"
        match self.reason:
            case ExitReason.SUCCEEDED:
                return "succeeded"
            case ExitReason.TAKEN_AWAY:
                return "taken away by the cluster"
            case ExitReason.OVER_LIMIT:
                return "over a limit of its own"
            case ExitReason.PROBE_FAILED:
                return f"{code_in_words(self.code)}, as by the kubelet after failed probes"
            case ExitReason.OOM_KILLED:
                return f"OOMKilled at {self.memory}" if self.memory else "OOMKilled"
            case ExitReason.RUN_AGAIN if self.code == 0:
                return "left before the end"
            case _:
                return code_in_words(self.code)


def with_consequence(end: Exit, role: str, rules: Sequence[FailureRule]) -> Exit:
    """Return the end of a node of `role`, with the consequence of the first rule that applies to it."""
    code = end.code
    if code is None or end.container or end.reason in WITHOUT_RULES:
        return end
    rule = next((rule for rule in rules if rule.applies(role, code)), None)
    return replace(end, ruled=BY_RULE[rule.action]) if rule is not None else end


def ending(pod: Pod) -> Exit | None:
    """Return how `pod` ended, None while it lives: its main container ends it, whatever runs beside."""
    terminated = main_end(pod)
    if pod.status.phase not in ("Succeeded", "Failed") and terminated is None:
        return None
    reason = classify(pod, terminated)
    if terminated is None and (failed := _failed_init(pod)):
        return failed
    if terminated is None:
        words = "" if reason is ExitReason.SUCCEEDED else (pod.status.message or pod.status.reason)
        return Exit(reason, words=words, memory=_memory_limit(pod), at=_last_change(pod))
    by_pod = reason in (ExitReason.TAKEN_AWAY, ExitReason.OVER_LIMIT)
    words = pod.status.message if by_pod else terminated.message
    return Exit(
        reason,
        code=terminated.exit_code,
        words=words,
        memory=_memory_limit(pod),
        at=terminated.finished_at or _last_change(pod),
        started=terminated.started_at,
    )


def classify(pod: Pod, terminated: ContainerTerminated | None) -> ExitReason:
    """Return why a pod that is over ended; `terminated` is its main container's end, if it ever ran."""
    if _is_over_its_limit(pod, terminated):
        return ExitReason.OVER_LIMIT
    if _is_taken_away(pod, terminated):
        return ExitReason.TAKEN_AWAY
    if terminated is None:
        return ExitReason.SUCCEEDED if pod.status.phase == "Succeeded" else ExitReason.FATAL_ERROR
    reason = words_of(terminated.message).get("reason")
    if terminated.exit_code and "OOMKilled" in (terminated.reason, reason):
        return ExitReason.OOM_KILLED
    if _is_killed_by_probes(pod, terminated):
        return ExitReason.PROBE_FAILED
    if terminated.exit_code == 0:
        return ExitReason.RUN_AGAIN if reason == LEFT else ExitReason.SUCCEEDED
    never_ran = any(each in (terminated.reason, reason) for each in NEVER_RAN)  # a message may say anything
    return ExitReason.CANNOT_START if never_ran else of_code(terminated.exit_code)


def _failed_init(pod: Pod) -> Exit | None:
    """Return the end of a pod that an init container ended. Sidecars are stopped after it, often with 143."""
    if pod.status.phase != "Failed" or classify(pod, None) is not ExitReason.FATAL_ERROR:
        return None
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy}
    for status in pod.status.init_container_statuses:
        end = status.state.terminated
        if end is not None and end.exit_code and status.name not in sidecars:
            at = end.finished_at or _last_change(pod)
            return Exit(
                ExitReason.FATAL_ERROR,
                code=end.exit_code,
                words=end.message,
                at=at,
                started=end.started_at,
                container=status.name,
            )
    return None


def _memory_limit(pod: Pod) -> str:
    """The limit in the container's status, since the spec may have been resized; else the spec's."""
    main, status = main_container(pod), main_status(pod)
    limits = main.resources.limits if main else {}
    allowed = status.resources.limits if status and status.resources else {}
    return str(allowed.get("memory", limits.get("memory", "")))


def _is_taken_away(pod: Pod, terminated: ContainerTerminated | None) -> bool:
    """Whether the cluster ended the pod, and not after its main container had succeeded."""
    target = (c for c in pod.status.conditions if c.type == "DisruptionTarget" and c.status == "True")
    disruption = next(target, None)
    by_cluster = pod.status.reason in TAKEN_AWAY or pod.status.reason.startswith(NO_ROOM)
    if pod.status.phase != "Failed" or not (by_cluster or disruption):
        return False
    since = disruption.last_transition_time if disruption else None
    ended = terminated.finished_at if terminated and terminated.exit_code == 0 else None
    return since is None or ended is None or ended >= since


def _is_over_its_limit(pod: Pod, terminated: ContainerTerminated | None) -> bool:
    """Whether the kubelet ended the pod for a limit of its template, and not after its success."""
    status = pod.status
    if status.phase != "Failed":
        return False
    by_itself = terminated and terminated.exit_code == 0 and not _is_stopped(terminated)
    ended = terminated.finished_at if terminated and by_itself else None
    if status.reason == EVICTED:
        return not by_itself and any(words in status.message for words in OWN_STORAGE)
    seconds, start = pod.spec.active_deadline_seconds, status.start_time
    late = ended is None or start is None or seconds is None or ended >= after(start, span(seconds))
    return status.reason == DEADLINE and late


def _is_killed_by_probes(pod: Pod, terminated: ContainerTerminated) -> bool:
    """Whether only a probe explains the kill of a container that has one, or that its agent was stopped."""
    main = main_container(pod)
    probed = main is not None and (main.liveness_probe, main.startup_probe) != (None, None)
    if not probed or pod.metadata.deletion_timestamp is not None or terminated.reason not in BY_SIGNAL:
        return False
    return _is_stopped(terminated) or of_code(terminated.exit_code) is ExitReason.KILLED


def _is_stopped(terminated: ContainerTerminated) -> bool:
    """Whether an agent says that it was told to stop."""
    return words_of(terminated.message).get("reason") == LEFT


def _last_change(pod: Pod) -> datetime | None:
    timestamps = (c.last_transition_time for c in pod.status.conditions if c.last_transition_time)
    return max(timestamps, default=None)
