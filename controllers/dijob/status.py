"""The status of a DIJob: the coordinator moves the phase, pods of all roles are counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.dijob import DIJob, DIJobCondition, DIJobPhase, DIJobStatus, ReplicaStatus
from elasticjob.api.diengine.names import STATUS_KEYS, Role
from elasticjob.api.v1alpha1.kueue import ADMITTED
from elasticjob.controllers.dijob.seen import Seen, outcome
from elasticjob.controllers.passes.plan import NAME_TAKEN
from elasticjob.kube.objects.conditions import FALSE, TRUE, shorten
from elasticjob.kube.objects.kstatus import Progress, Verdict


class Step(NamedTuple):
    """A phase, and why, as a reason and a sentence."""

    phase: DIJobPhase
    reason: str
    sentence: str


REASONS: Final[Mapping[DIJobPhase, str]] = {
    DIJobPhase.CREATED: "DIJobCreated",
    DIJobPhase.RUNNING: "DIJobRunning",
    DIJobPhase.SUCCEEDED: "DIJobSucceeded",
    DIJobPhase.FAILED: "DIJobFailed",
}
CREATED: Final = "the job is created"


def step(seen: Seen) -> Step | None:
    """Return the phase that a job enters now; None if it stays in its own."""
    job, phase = seen.job, seen.job.status.phase
    if phase is not None and phase.is_terminal:
        return None
    coordinator = count_pods(seen).get(STATUS_KEYS[Role.COORDINATOR], ReplicaStatus())
    for entered, count, sentence in (
        (DIJobPhase.RUNNING, coordinator.active, "the coordinator runs"),
        (DIJobPhase.FAILED, coordinator.failed, f"the coordinator has failed{_why(seen)}"),
        (DIJobPhase.SUCCEEDED, coordinator.succeeded, "the coordinator has succeeded"),
    ):
        if count:
            return _entered(job, entered, sentence) if entered is not phase else None
    if phase is DIJobPhase.RUNNING and not seen.may_run and seen.grant is not None:
        return _entered(job, DIJobPhase.CREATED, f"it waits in {seen.grant.sentence}")
    return _entered(job, DIJobPhase.CREATED, CREATED) if phase is None else None


def status_of(seen: Seen, entered: Step | None, now: datetime, taken: str = "") -> DIJobStatus:
    """Return the status of a job that enters a phase, or stays in its own.

    `taken` says that a name of its is another's, in a sentence, or is "".
    """
    before = seen.job.status
    phase = entered.phase if entered else before.phase
    counts = count_pods(seen)
    if phase is DIJobPhase.SUCCEEDED:
        counts = {role: _all_succeeded(count) for role, count in counts.items()}
    if phase is not None and phase.is_terminal:
        counts = _lasting_counts(before.replica_status, counts)
    conditions = list(before.conditions)
    if before.phase is None:  # the coordinator may run: an operator that made it may have died before this
        conditions = _set(conditions, _created(seen.job), seen.job, now)
    if entered is not None:
        new = DIJobCondition(
            type=entered.phase.value, status=TRUE, reason=entered.reason, message=shorten(entered.sentence)
        )
        conditions = _set(conditions, new, seen.job, now)
        running = before.condition(DIJobPhase.RUNNING.value)
        if entered.phase is not DIJobPhase.RUNNING and running is not None and running.status == TRUE:
            ended = running.model_copy(
                update={"status": FALSE, "reason": entered.reason, "message": shorten(entered.sentence)}
            )
            conditions = _set(conditions, ended, seen.job, now)
    if not (phase is not None and phase.is_terminal):
        conditions = _with_names(_with_queue(conditions, seen, now), seen, now, taken)
    for each in _progress(phase, conditions).conditions(each.type for each in conditions):
        found = DIJobCondition(
            type=each.type, status=each.status, reason=each.reason, message=shorten(each.message)
        )
        conditions = _said_anew(conditions, found, seen, now)
    return DIJobStatus(phase=phase, conditions=conditions, replica_status=counts)


VERDICTS: Final[Mapping[DIJobPhase, Verdict]] = {
    DIJobPhase.RUNNING: Verdict.READY,
    DIJobPhase.SUCCEEDED: Verdict.READY,
    DIJobPhase.FAILED: Verdict.STALLED,
}


def _progress(phase: DIJobPhase | None, conditions: list[DIJobCondition]) -> Progress:
    """What kstatus is told: the condition of the phase, or why the job is not created or not admitted."""
    entered = phase or DIJobPhase.CREATED
    verdict = VERDICTS.get(entered, Verdict.RECONCILING)
    waits = [
        each for each in conditions if each.type in (DIJobPhase.CREATED, ADMITTED) and each.status == FALSE
    ]
    said = [each for each in conditions if each.type == entered]
    reasons = [*waits, *said] if verdict is Verdict.RECONCILING else said
    return next(
        (Progress(verdict, each.reason, each.message) for each in reasons), Progress(verdict, entered)
    )


def _with_queue(conditions: list[DIJobCondition], seen: Seen, now: datetime) -> list[DIJobCondition]:
    """The conditions, with what its queue gives to the job; a job in no queue has none of that."""
    if seen.grant is None:
        return [each for each in conditions if each.type != ADMITTED]
    status, message = TRUE if seen.grant.admitted else FALSE, shorten(seen.grant.sentence)
    found = DIJobCondition(
        type=ADMITTED, status=status, reason=seen.grant.reason or "Refused", message=message
    )
    return _said_anew(conditions, found, seen, now)


def _with_names(
    conditions: list[DIJobCondition], seen: Seen, now: datetime, taken: str
) -> list[DIJobCondition]:
    """The conditions, of which Created is False as long as a name of the job is another's."""
    type_ = DIJobPhase.CREATED.value
    if taken:
        found = DIJobCondition(type=type_, status=FALSE, reason=NAME_TAKEN, message=shorten(taken))
        return _said_anew(conditions, found, seen, now)
    if not any(each.type == type_ and each.reason == NAME_TAKEN for each in conditions):
        return conditions
    return _set(conditions, _created(seen.job), seen.job, now)


def _created(job: DIJob) -> DIJobCondition:
    entered = _entered(job, DIJobPhase.CREATED, CREATED)
    return DIJobCondition(
        type=entered.phase.value, status=TRUE, reason=entered.reason, message=entered.sentence
    )


def _said_anew(
    conditions: list[DIJobCondition], found: DIJobCondition, seen: Seen, now: datetime
) -> list[DIJobCondition]:
    """The conditions with `found`, also where it only says the same in other words."""
    before = next((each for each in conditions if each.type == found.type), None)
    if before is not None and before.message != found.message:
        about = {"message": found.message, "last_update_time": now.replace(microsecond=0)}
        moved = before.model_copy(update=about)
        conditions = [moved if each is before else each for each in conditions]
    return _set(conditions, found, seen.job, now)


def count_pods(seen: Seen) -> dict[str, ReplicaStatus]:
    """Return the pods by role, without those that are being deleted."""
    found: dict[str, dict[str, int]] = {}
    for pod in seen.present:
        role, how = pods.role_of(pod), outcome(pod)
        if role is not None:
            counts = found.setdefault(STATUS_KEYS[role], {})
            counts[how] = counts.get(how, 0) + 1
    return {
        key: ReplicaStatus(**{how: found[key].get(how, 0) for how in ("active", "succeeded", "failed")})
        for key in STATUS_KEYS.values()
        if key in found
    }


def _lasting_counts(
    before: Mapping[str, ReplicaStatus], now: Mapping[str, ReplicaStatus]
) -> dict[str, ReplicaStatus]:
    """The counts of a finished job: what has ended is counted on after its pods are gone."""
    found = {}
    for key in STATUS_KEYS.values():
        old, new = before.get(key), now.get(key)
        if old is None or new is None:
            last = old or new
            if last is not None:
                found[key] = last if new is not None else last.model_copy(update={"active": 0})
            continue
        found[key] = ReplicaStatus(
            active=new.active,
            succeeded=max(old.succeeded, new.succeeded),
            failed=max(old.failed, new.failed),
        )
    return found


def _all_succeeded(count: ReplicaStatus) -> ReplicaStatus:
    return ReplicaStatus(active=0, succeeded=count.succeeded + count.active, failed=count.failed)


def _entered(job: DIJob, phase: DIJobPhase, sentence: str) -> Step:
    return Step(phase, REASONS[phase], f"DIJob {job.metadata.name}: {sentence}")


def _why(seen: Seen) -> str:
    """How the coordinator ended, as far as its containers tell."""
    found = [
        state.terminated
        for pod in seen.of(Role.COORDINATOR)
        for state in (status.state for status in pod.status.container_statuses)
        if state.terminated is not None and state.terminated.exit_code
    ]
    if not found:
        return ""
    reason = f" ({found[0].reason})" if found[0].reason not in ("", "Error") else ""
    return f" with exit code {found[0].exit_code}{reason}"


def _set(
    conditions: list[DIJobCondition], new: DIJobCondition, job: DIJob, now: datetime
) -> list[DIJobCondition]:
    """The conditions with `new`; one that says the same stays as it is."""
    now = now.replace(microsecond=0)
    old = next((each for each in conditions if each.type == new.type), None)
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return conditions
    since = old.last_transition_time if old is not None and old.status == new.status else now
    said = new.model_copy(
        update={
            "last_update_time": now,
            "last_transition_time": since,
            "observed_generation": job.metadata.generation,
        }
    )
    if old is None:
        return [*conditions, said]
    return [said if each.type == new.type else each for each in conditions]
