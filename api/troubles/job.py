"""What is wrong with one job: rules in their order; `CAUSES` says what each cause is, and what mends it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from elasticjob.api.resources import Resources, unit
from elasticjob.api.roles import WORKER
from elasticjob.api.sentences import few
from elasticjob.api.troubles.causes import CAUSES, cause_of, trouble_of
from elasticjob.api.troubles.facts import UNREADY, JobFacts, is_unseen, running_master, when
from elasticjob.api.troubles.trouble import Grade, Rule, Trouble, diagnose, well
from elasticjob.api.v1alpha1.containers import main_end
from elasticjob.api.v1alpha1.elasticjob import FINISHED, Finding, Phase
from elasticjob.api.v1alpha1.keeping import outlook
from elasticjob.api.v1alpha1.last_words import code_in_words, last_error
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.kube.objects.conditions import find
from elasticjob.kube.objects.views import Pod

NO_STEP: Final = timedelta(minutes=5)
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
STUCK: Final = timedelta(minutes=2)
RECENT: Final = timedelta(minutes=30)
OFTEN: Final = 3
"""How often a worker fails in the same way, or machines refuse a pod, until a person must look."""
WARM: Final = timedelta(minutes=10)
"""A job that has begun since says nothing by its goodput."""
POOR: Final = 0.8
"""Goodput below it is worth a look."""
COUNT: Final = re.compile(r"\d+ of \d+ nodes run(; )?")
"""What precedes the sentence in the condition Running."""
MOUNTS: Final = ("FailedMount", "FailedAttachVolume", "FailedMapVolume")
OFFERS: Final = ("UnexpectedAdmissionError", "TopologyAffinityError", "OutOf")
"""How the reasons begin for which a kubelet refuses a pod that the scheduler gave to its machine."""


def examine(seen: JobFacts, now: datetime) -> tuple[Trouble, ...]:
    """Return what is wrong with a job, else how it does; of one that is being deleted, what holds it."""
    leaving = seen.job.metadata.deletion_timestamp is not None
    return diagnose(OF_DELETION if leaving else RULES, seen, now)


def belongs_to_another_controller(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """A job with another managedBy is left alone; MultiKueue runs it in another cluster."""
    if not seen.job.spec.is_ours and seen.job.spec.managed_by != MULTIKUEUE:
        yield trouble_of("ManagedElsewhere", seen.job, seen.job.spec.managed_by)


def is_not_seen_by_an_operator(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """The status of a job that an operator reconciles follows its spec within seconds."""
    meta = seen.job.metadata
    if is_unseen(seen.job, now):
        told = f"generation {meta.generation}, seen {seen.job.status.observed_generation or 0}"
        yield trouble_of("NotReconciled", seen.job, told)


def cannot_be_deleted(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """A job that is being deleted goes within seconds, unless a finalizer or a pod holds it."""
    meta = seen.job.metadata
    if meta.deletion_timestamp is None:
        return
    if now - meta.deletion_timestamp < STUCK:
        yield trouble_of("Deleting", seen.job)
        return
    held = f"finalizer {few(meta.finalizers)}" if meta.finalizers else f"{len(seen.pods)} pods have not ended"
    yield trouble_of("DeletionHeld", seen.job, held, since=meta.deletion_timestamp)


def has_pods_that_stay(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """A pod that was told to end goes after its grace period, unless a finalizer or its machine holds it."""
    for pod in seen.pods:
        meta, at = pod.metadata, pod.metadata.deletion_timestamp
        if at is None or now - at < STUCK:  # the timestamp is the end of its grace period
            continue
        why = f"finalizer {few(meta.finalizers)}" if meta.finalizers else f"on {pod.spec.node_name}"
        yield trouble_of("PodHeld", seen.job, f"{meta.name}: {why}", since=at)


def has_failed(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """The condition says why."""
    failed = find(seen.job.status.conditions, "Failed")
    if failed is not None and failed.status == "True":
        made = trouble_of(
            failed.reason, seen.job, failed.message, grade=Grade.WRONG, since=failed.last_transition_time
        )
        yield replace(made, sentence=f"the job has failed: {made.sentence}")


def has_fewer_pods_than_it_says(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """The status counts nodes that run, and their pods are gone: nobody has looked since."""
    if seen.behind:
        yield trouble_of("NotReconciled", seen.job, seen.behind)


def has_an_unreachable_master(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """Its page does not answer, and its probe fails: a network policy may keep the reader from the page."""
    pod = running_master(seen.pods)
    if pod is None or seen.job.status.phase in FINISHED:
        return
    ready = find(pod.status.conditions, "Ready")
    since = ready.last_transition_time if ready and ready.status == "False" else None
    if since is not None and now - since >= UNREADY:
        told = seen.master or f"{pod.metadata.name} does not answer its probe"
        yield trouble_of("MasterUnreachable", seen.job, told, since=since)
    elif seen.master:
        yield trouble_of("NotRead", seen.job, f"the master's page: {seen.master}")


def has_nodes_that_do_not_run(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """status.reason says in a word why nodes do not run, the condition Running in sentences."""
    status = seen.job.status
    running = find(status.conditions, "Running")
    if not status.reason or running is None or status.phase in FINISHED:
        return
    detail = COUNT.sub("", running.message, count=1)
    since = running.last_transition_time if running.status == "False" else None
    told = (each.first_timestamp for each in seen.events if each.reason == status.reason)
    since = max(filter(None, told), default=since)
    again = find(status.conditions, "Restarting")
    if again is not None and again.status == "True" and not detail:
        detail, since = again.message, again.last_transition_time
    cause = cause_of(status.reason, detail)
    made = trouble_of(cause, seen.job, detail or running.message, since=since)
    yield replace(made, commands=(*_fewer(seen, status.reason), *made.commands))


def has_no_queue(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """It names a queue of Kueue, and runs without quota since there is none."""
    admitted = find(seen.job.status.conditions, "Admitted")
    if admitted and admitted.reason == "KueueAbsent" and seen.job.status.phase not in FINISHED:
        since = admitted.last_transition_time
        yield trouble_of("KueueAbsent", seen.job, admitted.message, since=since)


def does_not_fit_its_nodes(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
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
            told = f"{waiting.metadata.name} asks for {amount} of {name}, and no machine has more than {most}"
            yield trouble_of("NeverFits", seen.job, told)


def is_held_by_its_machine(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """A kubelet says in events only why it cannot mount a volume."""
    pending = {pod.metadata.name for pod in seen.pods if pod.status.phase in ("", "Pending")}
    found = [each for each in seen.events if each.reason in MOUNTS and each.involved_object.name in pending]
    for event in found[-1:]:
        gone = re.search(r"(?:configmap|secret) \S+ not found", event.message)
        cause = "VolumeMissing" if gone else "MountFails"
        told = gone.group() if gone else event.message
        yield trouble_of(cause, seen.job, f"{event.involved_object.name}: {told}", last=event.latest)


def is_refused_by_machines(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """Kubelets refuse what the scheduler gives them: a device plugin that fails, a topology policy."""
    refused = [
        pod for pod in seen.pods if pod.status.phase == "Failed" and pod.status.reason.startswith(OFFERS)
    ]
    if seen.job.status.phase not in FINISHED and refused:
        last = max(refused, key=lambda pod: pod.metadata.creation_timestamp or now)
        told = f"{last.metadata.name} on {last.spec.node_name}: {last.status.reason}: {last.status.message}"
        grade = Grade.WRONG if len(refused) >= OFTEN else Grade.DOUBTFUL
        yield trouble_of("RefusedByMachine", seen.job, told, grade=grade, count=len(refused))


def lost_nodes_to_errors(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """The last words of pods that failed lately; over once the job makes steps again with all its nodes."""
    status = seen.job.status
    if status.phase is Phase.FAILED:
        return
    for pod in seen.pods:
        end = main_end(pod)
        if end is None or not end.exit_code or (end.finished_at and now - end.finished_at > RECENT):
            continue
        told = ": ".join(filter(None, (code_in_words(end.exit_code), last_error(end.message))))
        grade = Grade.OVER if status.phase in (Phase.RUNNING, Phase.SUCCEEDED) else Grade.DOUBTFUL
        words = f"{pod.metadata.name}: {told}"
        yield trouble_of("WorkersRestart", seen.job, words, grade=grade, last=end.finished_at)


def makes_no_step(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """Nodes run, and the master has not been told of a step."""
    training = find(seen.job.status.conditions, "Training")
    if training is None or training.reason != "NoStepYet" or training.last_transition_time is None:
        return
    if now - training.last_transition_time >= NO_STEP:
        yield trouble_of("NoStepYet", seen.job, since=training.last_transition_time)


def has_findings_of_its_master(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """Hangs, stragglers, broken nodes, losses that are no numbers, checkpoints that are not saved."""
    training = seen.job.status.training
    found = training.findings if training and seen.job.status.phase not in FINISHED else ()
    recent = [each for each in found if each.until is None or now - each.until < RECENT]
    by_kind = sorted(recent, key=lambda each: (each.reason, each.until is not None, each.time))
    for (reason, over), alike in groupby(by_kind, lambda each: (each.reason, _is_over(each, now))):
        yield _finding(seen, reason, list(alike), over=over)


def has_plans_that_failed(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """The newest plan of a job, if it failed."""
    ended = [plan for plan in seen.plans if plan.status.phase is not None]
    newest = max(ended, key=lambda plan: plan.metadata.creation_timestamp or now, default=None)
    if newest is None or newest.status.phase is not PlanPhase.FAILED or seen.job.status.phase in FINISHED:
        return
    failed = find(newest.status.conditions, "Failed")
    why = failed.message if failed else "it does not say why"
    since = failed.last_transition_time if failed else None
    yield trouble_of("PlanFailed", seen.job, f"{newest.metadata.name}: {why}", since=since)


def loses_time(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """Goodput is low, and the causes say where the time goes."""
    training, began = seen.job.status.training, seen.job.status.start_time
    if training is None or not training.step or training.goodput is None or training.goodput >= POOR:
        return
    if seen.job.status.phase in FINISHED or began is None or now - began < WARM:
        return
    causes = sorted(training.badput_seconds.items(), key=lambda each: -each[1])[:3]
    lost = ", ".join(f"{cause} {seconds} s" for cause, seconds in causes) or "no cause is known"
    yield trouble_of("LowGoodput", seen.job, f"{training.goodput:.0%} is; lost: {lost}")


def is_warned_of(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """The newest warnings in Events about the job that nothing else tells of; what has a row is looked at
    where it is seen, and is over where it is not."""
    warnings = (each for each in seen.events if each.type == "Warning")
    about = [each for each in warnings if each.involved_object.kind == "ElasticJob"]
    last = {event.reason: event for event in sorted(about, key=when)}
    training = seen.job.status.training
    known = {*CAUSES, *(each.reason for each in (training.findings if training else ()))}
    for event in [*last.values()][-3:]:
        is_recent = event.latest is not None and now - event.latest < RECENT
        if is_recent and event.reason not in known and seen.job.status.phase not in FINISHED:
            words = {"grade": Grade.DOUBTFUL, "last": event.latest, "count": event.count}
            yield trouble_of(event.reason, seen.job, event.message, **words)


def is_suspended(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """Somebody has asked for it."""
    if seen.job.spec.suspend and seen.job.status.phase not in FINISHED:
        yield trouble_of("Suspended", seen.job, outlook(seen.job))


def was_not_read_whole(seen: JobFacts, now: datetime) -> Iterator[Trouble]:
    """What did not answer, or what the reader has no right to see."""
    for what, why in seen.unread.items():
        yield trouble_of("NotRead", seen.job, f"{what}: {why}")


def is_well(seen: JobFacts, now: datetime) -> Iterable[Trouble]:
    """How it does."""
    status = seen.job.status
    training = status.training
    told = [
        f"{seen.job.metadata.name} is {status.phase or 'new'}",
        f"workers {status.workers}" if status.workers else "",
    ]
    if training and training.step is not None:
        told.append(f"step {training.step:,}")
    if training and training.steps_per_second and status.phase not in FINISHED and not seen.master:
        told.append(f"{training.steps_per_second:.3g} steps/s")
    return well(", ".join(filter(None, told)))


RULES: Final[tuple[Rule[JobFacts], ...]] = (
    belongs_to_another_controller,
    is_not_seen_by_an_operator,
    has_failed,
    has_fewer_pods_than_it_says,
    does_not_fit_its_nodes,
    is_refused_by_machines,
    has_an_unreachable_master,
    has_nodes_that_do_not_run,
    has_no_queue,
    is_held_by_its_machine,
    has_findings_of_its_master,
    has_pods_that_stay,
    makes_no_step,
    lost_nodes_to_errors,
    has_plans_that_failed,
    loses_time,
    is_warned_of,
    is_suspended,
    was_not_read_whole,
    is_well,
)


OF_DELETION: Final[tuple[Rule[JobFacts], ...]] = (
    cannot_be_deleted,
    has_pods_that_stay,
    was_not_read_whole,
    is_well,
)


def _is_over(finding: Finding, now: datetime) -> bool:
    """Whether it is not so any more; what happens once is over after a while."""
    return finding.until is not None or now - (finding.last_time or finding.time) > RECENT


def _finding(seen: JobFacts, reason: str, alike: list[Finding], *, over: bool) -> Trouble:
    """Return the findings of a kind as one trouble, whose sentence is that of the first."""
    count = sum(each.count or 1 for each in alike)
    serious = CAUSES[reason].grade if reason in CAUSES else Grade.DOUBTFUL
    if reason == "WorkerFailed" and max(each.count or 1 for each in alike) < OFTEN:
        serious = Grade.DOUBTFUL
    return trouble_of(
        reason,
        seen.job,
        alike[0].message,
        grade=Grade.OVER if over else serious,
        since=min(each.time for each in alike),
        last=max(each.until or each.last_time or each.time for each in alike),
        count=count,
    )


def _fewer(seen: JobFacts, reason: str) -> tuple[str, ...]:
    """Return the command that lets a job without room begin smaller, if it may."""
    least, workers = seen.job.spec.world.least, seen.job.status.replica_statuses.get(WORKER)
    if reason != "Unschedulable" or workers is None or least >= workers.desired:
        return ()
    return (f"elasticjob scale {seen.job.metadata.name} -n {seen.job.metadata.namespace} {least}",)


def _unschedulable(pod: Pod) -> bool:
    placed = find(pod.status.conditions, "PodScheduled")
    refused = placed is not None and (placed.status, placed.reason) == ("False", "Unschedulable")
    return pod.status.phase == "Pending" and refused


def _requests(pod: Pod) -> Resources:
    total = Resources({})
    for container in pod.spec.containers:
        total = total + Resources.parse(container.resources.requests)
    return total
