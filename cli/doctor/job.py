"""What is wrong with one job: the rules in their order, and what mends each reason of its status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from elasticjob.api.resources import Resources, unit
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import FINISHED, Phase
from elasticjob.api.v1alpha1.keeping import outlook
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.cli.doctor.finding import Finding, Grade, Rule, diagnose, doubtful, well, wrong
from elasticjob.cli.doctor.seen import OneJob, ago, is_unseen, span
from elasticjob.client.described import when
from elasticjob.controllers.nodes.exits import ending
from elasticjob.controllers.passes.conclusions import is_ours
from elasticjob.kube.objects.conditions import find
from elasticjob.kube.objects.views import Pod

NO_STEP: Final = timedelta(minutes=5)
STUCK: Final = timedelta(minutes=2)
RECENT: Final = timedelta(minutes=30)
GRAVE: Final = ("Hang", "CheckpointTrouble", "FaultNode", "CutOff")
"""Findings of a master by which the training loses something."""
OFTEN: Final = 3
"""How often a worker fails in the same way until a person must look."""
POOR: Final = 0.8
"""Goodput below it is worth a look."""


def examine(seen: OneJob, now: datetime) -> tuple[Finding, ...]:
    """Return what is wrong with a job, and, where nothing is, how it does."""
    return diagnose(RULES, seen, now)


def belongs_to_another_controller(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """A job with another managedBy is left alone."""
    if is_ours(seen.job):
        return ()
    return wrong(
        f"spec.managedBy is {seen.job.spec.managed_by}: this operator leaves the job alone",
        f"kubectl delete {seen.as_object}, and apply the job without spec.managedBy",
    )


def is_not_seen_by_an_operator(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """The status of a job that an operator reconciles follows its spec within seconds."""
    meta, status = seen.job.metadata, seen.job.status
    if not is_unseen(seen.job, now):
        return ()
    what = "no operator has looked at the job" if status.phase is None else "the last change is not seen yet"
    return wrong(
        f"{what}: generation {meta.generation}, seen {status.observed_generation or 0}", "elasticjob doctor"
    )


def cannot_be_deleted(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """A job that is being deleted goes within seconds, unless a finalizer or a pod holds it."""
    meta = seen.job.metadata
    if meta.deletion_timestamp is None:
        return ()
    if now - meta.deletion_timestamp < STUCK:
        return doubtful("the job is being deleted")
    held = (
        f"finalizers {', '.join(meta.finalizers)}"
        if meta.finalizers
        else f"{len(seen.pods)} pods that have not ended"
    )
    return wrong(
        f"the job is being deleted since {ago(meta.deletion_timestamp, now)}; it is held by {held}",
        f"kubectl get pods -n {meta.namespace} -l elasticjob.dlrover/name={seen.name}",
    )


def has_failed(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """The condition says why, and the reason has a remedy."""
    failed = find(seen.job.status.conditions, "Failed")
    if failed is None or failed.status != "True":
        return ()
    return [
        Finding(
            Grade.WRONG,
            f"the job has failed: {failed.reason}: {failed.message}",
            (*_remedy(failed.reason, seen), f"elasticjob logs {seen.names}"),
        )
    ]


def has_nodes_that_do_not_run(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """status.reason says in a word why nodes do not run, the condition Running in sentences."""
    status = seen.job.status
    running = find(status.conditions, "Running")
    if not status.reason or status.phase in FINISHED or running is None:
        return ()
    return [Finding(Grade.WRONG, f"{status.reason}: {running.message}", _remedy(status.reason, seen))]


def does_not_fit_its_nodes(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """A pod that no node of the cluster could hold, even an empty one, waits for ever."""
    waiting = next((pod for pod in seen.pods if _unschedulable(pod)), None)
    if waiting is None or not seen.nodes:
        return
    room = Resources({})
    for node in seen.nodes:
        room = room.most(Resources.parse(node.status.allocatable))
    for name, amount in _requests(waiting).items():
        most = room.get(name, unit(name)(0))
        if amount.value > most.value:
            yield Finding(
                Grade.WRONG,
                f"{waiting.metadata.name} asks for {amount} of {name}, and no node has more than {most}",
                ("lower resources.requests in the role's template, or add nodes that have as much",),
            )


def lost_nodes_to_errors(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """The last words of pods that failed lately, one per sentence."""
    if seen.job.status.phase is Phase.FAILED:
        return
    for pod in seen.pods:
        end = ending(pod)
        if end is None or end.code in (0, None) or (end.at and now - end.at > RECENT):
            continue
        yield Finding(
            Grade.DOUBTFUL,
            f"{pod.metadata.name} failed {ago(end.at, now)} ago: {end.sentence}",
            (f"kubectl logs {pod.metadata.name} -n {pod.metadata.namespace}",),
        )


def makes_no_step(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """Nodes run, and the master has not been told of a step."""
    training = find(seen.job.status.conditions, "Training")
    if training is None or training.reason != "NoStepYet" or training.last_transition_time is None:
        return ()
    if (since := now - training.last_transition_time) < NO_STEP:
        return ()
    return doubtful(
        f"nodes run since {span(since)}, and no step has been made: the script loads data, waits for "
        "peers, or does not report its steps",
        f"elasticjob logs {seen.names} --tail 20",
        f"elasticjob logs {seen.names} master --tail 20",
    )


def has_findings_of_its_master(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """Hangs, stragglers, broken nodes, losses that are no numbers, checkpoints that are not saved."""
    training = seen.job.status.training
    for found in training.findings if training else ():
        past, last = found.until is not None, found.last_time or found.time
        if seen.job.status.phase in FINISHED or now - (found.until or last) > RECENT:
            continue
        wrong = (found.reason in GRAVE or (found.count or 1) >= OFTEN) and not past
        yield Finding(
            Grade.WRONG if wrong else Grade.DOUBTFUL,
            f"{found.reason}, {ago(last, now)} ago{found.times}{' (over)' if past else ''}: {found.message}",
            (f"elasticjob logs {seen.names} --tail 50",),
        )


def has_plans_that_failed(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """The newest plan of a job, if it failed."""
    ended = [plan for plan in seen.plans if plan.status.phase is not None]
    newest = max(ended, key=lambda plan: plan.metadata.creation_timestamp or now, default=None)
    if newest is None or newest.status.phase is not PlanPhase.FAILED or seen.job.status.phase in FINISHED:
        return ()
    failed = find(newest.status.conditions, "Failed")
    why = failed.message if failed else "it does not say why"
    return doubtful(
        f"ScalePlan {newest.metadata.name} failed: {why}",
        f"kubectl describe scaleplan/{newest.metadata.name} -n {seen.job.metadata.namespace}",
    )


def loses_time(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """Goodput is low, and the causes say where the time goes."""
    training = seen.job.status.training
    if training is None or not training.step or training.goodput is None or training.goodput >= POOR:
        return ()
    causes = sorted(training.badput_seconds.items(), key=lambda each: -each[1])[:3]
    told = ", ".join(f"{cause} {seconds} s" for cause, seconds in causes) or "no cause is known"
    return doubtful(
        f"{training.goodput:.0%} of the workers' time was productive; lost: {told}",
        f"elasticjob explain {seen.names}",
    )


def is_warned_of(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """The newest warnings in Events about the job itself."""
    about = [
        event
        for event in seen.events
        if event.type == "Warning" and event.involved_object.kind == "ElasticJob"
    ]
    training = seen.job.status.training
    named = {seen.job.status.reason, *(found.reason for found in (training.findings if training else ()))}
    last = {event.reason: event for event in sorted(about, key=when)}
    for event in [*last.values()][-3:]:
        at = event.last_timestamp or event.event_time
        told_already = event.reason in named or seen.job.status.phase in FINISHED
        if at is not None and now - at < RECENT and not told_already:
            yield Finding(
                Grade.DOUBTFUL,
                f"{event.reason}, {ago(at, now)} ago: {event.message}",
                (f"kubectl describe {seen.as_object}",),
            )


def is_suspended(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """Somebody has asked for it."""
    if not seen.job.spec.suspend or seen.job.status.phase in FINISHED:
        return ()
    told = "; ".join(filter(None, ("the job is suspended", outlook(seen.job))))
    return doubtful(told, f"elasticjob resume {seen.names}")


def is_well(seen: OneJob, now: datetime) -> Iterable[Finding]:
    """How it does."""
    status = seen.job.status
    training = status.training
    told = [f"{seen.name} is {status.phase or 'new'}", f"workers {status.workers}" if status.workers else ""]
    if training and training.step is not None:
        told.append(f"step {training.step:,}")
    if training and training.steps_per_second and status.phase not in FINISHED:
        told.append(f"{training.steps_per_second:.3g} steps/s")
    return well(", ".join(filter(None, told)))


RULES: Final[tuple[Rule[OneJob], ...]] = (
    belongs_to_another_controller,
    is_not_seen_by_an_operator,
    cannot_be_deleted,
    has_failed,
    has_nodes_that_do_not_run,
    does_not_fit_its_nodes,
    makes_no_step,
    has_findings_of_its_master,
    lost_nodes_to_errors,
    has_plans_that_failed,
    loses_time,
    is_warned_of,
    is_suspended,
    is_well,
)


def _remedy(reason: str, seen: OneJob) -> tuple[str, ...]:
    made = REMEDIES.get(reason)
    return made(seen) if made else (f"kubectl describe {seen.as_object}",)


def _edit(what: str) -> Callable[[OneJob], tuple[str, ...]]:
    return lambda seen: (f"{what}: kubectl edit {seen.as_object}",)


def _again(what: str) -> Callable[[OneJob], tuple[str, ...]]:
    return lambda seen: (f"{what}; then kubectl replace --force -f the job's file, which starts it again",)


def _image(seen: OneJob) -> tuple[str, ...]:
    images = sorted(
        {
            status.image
            for pod in seen.pods
            for status in pod.status.container_statuses
            if status.state.waiting
        }
    )
    named = ", ".join(filter(None, images)) or "the image"
    return (
        f"look whether {named} is spelled right and may be pulled: template.spec.imagePullSecrets",
        f"kubectl edit {seen.as_object}",
    )


def _room(seen: OneJob) -> tuple[str, ...]:
    least, look = seen.job.spec.world.least, "kubectl describe nodes   # what is taken, and by whom"
    workers = seen.job.status.replica_statuses.get(WORKER)
    wanted = workers.desired if workers else 0
    fewer = f"elasticjob scale {seen.names} {least}   # the fewest workers that it may have"
    return (fewer, look) if least < wanted else (look,)


def _quota(seen: OneJob) -> tuple[str, ...]:
    return (f"kubectl describe resourcequota -n {seen.job.metadata.namespace}",)


def _missing(seen: OneJob) -> tuple[str, ...]:
    return (f"create the object that is named, or correct the volume: kubectl edit {seen.as_object}",)


REMEDIES: Final[Mapping[str, Callable[[OneJob], tuple[str, ...]]]] = MappingProxyType(
    {
        "Unschedulable": _room,
        "SchedulingGated": lambda seen: (
            "another controller holds the pods back: look at their schedulingGates",
        ),
        "ImagePullBackOff": _image,
        "ErrImagePull": _image,
        "InvalidImageName": _image,
        "ErrImageNeverPull": _image,
        "CreateContainerConfigError": _missing,
        "ContainerCreating": _missing,
        "CreateContainerError": _edit("correct the container's command or mounts"),
        "InitContainerFailed": lambda seen: (
            f"kubectl describe pods -n {seen.job.metadata.namespace} -l elasticjob.dlrover/name={seen.name}",
        ),
        "QuotaExceeded": _quota,
        "Refused": lambda seen: (
            f"kubectl describe {seen.as_object}   # which policy refuses the pods, and why",
        ),
        "NameTaken": lambda seen: ("delete or rename the object that is named: it is not this job's",),
        "GangUnavailable": _edit("install the gang's scheduler, or write gang: preferred"),
        "RestartsSpent": _again("mend the error, or raise restartCount or backoffLimit"),
        "PodFailed": _again("mend the error"),
        "PodFailurePolicy": _again("mend the error, or the rule of runPolicy.failurePolicy that it met"),
        "CannotStart": _again("mend the error, or the command if the image has no such program"),
        "OutOfMemory": _again("raise resourceLimits.memory, or the memory of the role's template"),
        "OOMKilled": lambda seen: (
            f"kubectl get scaleplans -n {seen.job.metadata.namespace}   # the operator "
            "raises memory, up to resourceLimits",
        ),
        "DeadlineExceeded": _again("raise runPolicy.activeDeadlineSeconds"),
        "PendingTimeout": _again("make room, or raise runPolicy.pendingTimeoutSeconds"),
        "Impossible": _edit("choose sizes within minReplicas, maxReplicas and resourceLimits"),
        "Resizing": lambda seen: ("kubectl describe nodes   # whether the node has room for the larger pod",),
        "MachineGone": lambda seen: ("kubectl get nodes   # the pods are made again on others",),
    }
)
"""What mends each reason of status.reason and of the condition Failed."""


def _unschedulable(pod: Pod) -> bool:
    placed = find(pod.status.conditions, "PodScheduled")
    refused = placed is not None and (placed.status, placed.reason) == ("False", "Unschedulable")
    return pod.status.phase == "Pending" and refused


def _requests(pod: Pod) -> Resources:
    total = Resources({})
    for container in pod.spec.containers:
        total = total + Resources.parse(container.resources.requests)
    return total
