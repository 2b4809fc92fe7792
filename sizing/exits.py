"""The ends of processes and containers, and their consequences: one table for operator and process scaler.

75 is the agent's "run me again"; 201, 202 and 14 are a broken GPU; 126 and 127: there is no such program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from elasticjob.api.v1alpha1.elasticjob import RestartPolicy
from elasticjob.api.v1alpha1.last_words import RUN_AGAIN as RUN_AGAIN

OOM_CODE = 247
HARDWARE_CODES = frozenset({14, 201, 202})
KILLED_CODES = frozenset({137, 143})
NOT_FOUND_CODES = frozenset({126, 127})


class ExitReason(StrEnum):
    """Why a pod is over."""

    SUCCEEDED = "Succeeded"
    TAKEN_AWAY = "TakenAway"  # evicted, preempted, its node shut down
    OOM_KILLED = "OOMKilled"
    KILLED = "Killed"  # SIGKILL or SIGTERM from outside
    OVER_LIMIT = "OverLimit"  # over one that its template sets: local storage, activeDeadlineSeconds
    PROBE_FAILED = "ProbeFailed"  # killed by the kubelet because of its template's probe
    RUN_AGAIN = "RunAgain"  # the agent asks for it
    HARDWARE_ERROR = "HardwareError"
    CANNOT_START = "CannotStart"  # no such program, or the runtime cannot run it
    FATAL_ERROR = "FatalError"  # other exit codes below 128: the program gave up
    CRASHED = "Crashed"  # exit codes from 128: a signal, or a retryable error


ON_ANY_FAILURE = frozenset({RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE})
ON_RETRYABLE = ON_ANY_FAILURE | {RestartPolicy.EXIT_CODE}
EVEN_NEVER = frozenset(RestartPolicy)  # the program did not end by itself, so running it again is no restart


@dataclass(frozen=True)
class Consequence:
    """Under which restart policies a successor follows, whether it uses the budget, and where it is placed.

    `elsewhere`: on another machine. `rather_elsewhere`: that, too, if there is one, after a short life.
    """

    relaunch_under: frozenset[RestartPolicy]
    counts: bool
    elsewhere: bool = False
    rather_elsewhere: bool = False
    fails_job: bool = False


CONSEQUENCES: Mapping[ExitReason, Consequence] = MappingProxyType(
    {
        ExitReason.SUCCEEDED: Consequence(frozenset({RestartPolicy.ALWAYS}), counts=False),
        ExitReason.TAKEN_AWAY: Consequence(EVEN_NEVER, counts=False, rather_elsewhere=True),
        ExitReason.OOM_KILLED: Consequence(ON_RETRYABLE, counts=True),
        ExitReason.KILLED: Consequence(ON_RETRYABLE, counts=False, rather_elsewhere=True),
        ExitReason.OVER_LIMIT: Consequence(ON_RETRYABLE, counts=True),
        ExitReason.PROBE_FAILED: Consequence(ON_RETRYABLE, counts=True),
        ExitReason.RUN_AGAIN: Consequence(ON_RETRYABLE, counts=False),
        ExitReason.HARDWARE_ERROR: Consequence(ON_RETRYABLE, counts=True, elsewhere=True),
        ExitReason.CANNOT_START: Consequence(ON_ANY_FAILURE, counts=True),
        ExitReason.FATAL_ERROR: Consequence(ON_ANY_FAILURE, counts=True),
        ExitReason.CRASHED: Consequence(ON_RETRYABLE, counts=True),
    }
)


def of_code(code: int) -> ExitReason:
    """Return the reason that an exit code alone stands for."""
    if code == 0:
        return ExitReason.SUCCEEDED
    if code == OOM_CODE:
        return ExitReason.OOM_KILLED
    if code in KILLED_CODES:
        return ExitReason.KILLED
    if code == RUN_AGAIN:
        return ExitReason.RUN_AGAIN
    if code in HARDWARE_CODES:
        return ExitReason.HARDWARE_ERROR
    if code in NOT_FOUND_CODES:
        return ExitReason.CANNOT_START
    return ExitReason.FATAL_ERROR if code < 128 else ExitReason.CRASHED


def of_status(status: int | None) -> ExitReason:
    """Return the reason of a process's end; -N is a signal, as in Python; None: the code is not known."""
    if status is None:
        return ExitReason.CRASHED
    return of_code(128 - status if status < 0 else status)
