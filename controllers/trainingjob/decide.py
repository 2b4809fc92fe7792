"""Which ElasticJob a TrainingJob should have, and what its status says of that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from elasticjob.api.paddle.convert import elasticjob_of, problems, queue_labels
from elasticjob.api.paddle.trainingjob import TrainingJob, TrainingJobPhase, TrainingJobStatus
from elasticjob.api.v1alpha1.checks.changes import the_queue_stays
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob, Phase
from elasticjob.api.v1alpha1.kueue import ADMITTED
from elasticjob.controllers.parts.owners import controlled_by, controller_uid
from elasticjob.controllers.passes.plan import LATER, NAME_TAKEN, REFUSED, Apply, Create, Patch, Plan
from elasticjob.kube.objects.conditions import find
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.kstatus import Progress, Verdict, progress_of, with_progress

PHASES: Final = {
    None: TrainingJobPhase.NONE,
    Phase.CREATED: TrainingJobPhase.CREATING,
    Phase.PENDING: TrainingJobPhase.CREATING,
    Phase.RUNNING: TrainingJobPhase.RUNNING,
    Phase.SCALING: TrainingJobPhase.SCALING,
    Phase.RESTARTING: TrainingJobPhase.RUNNING,
    Phase.SUSPENDED: TrainingJobPhase.NONE,
    Phase.SUCCEEDED: TrainingJobPhase.SUCCEEDED,
    Phase.FAILED: TrainingJobPhase.FAILED,
}
LONGEST: Final = 1024


@dataclass(frozen=True)
class Seen:
    """A TrainingJob, and the ElasticJob of its name, whoever that belongs to."""

    job: TrainingJob
    found: ElasticJob | None

    @property
    def child(self) -> ElasticJob | None:
        """The ElasticJob that was made for it."""
        ours = self.found and controller_uid(self.found.metadata) == self.job.metadata.uid
        return self.found if ours else None


def decide(seen: Seen) -> Plan:
    """Return what is written for a TrainingJob."""
    job = seen.job
    if job.metadata.deletion_timestamp or (job.status.phase and job.status.phase.is_terminal):
        return Plan(quiet=True)
    if wrong := problems(job):  # of a cluster without the webhook
        return Plan(REFUSED, "; ".join(map(str, wrong)), quiet=True)
    if seen.found is not None and seen.child is None:
        what = f"ElasticJob {job.metadata.name} exists and is not of this TrainingJob: delete it, or rename"
        return Plan(NAME_TAKEN, what, again_in=LATER, quiet=True)
    if seen.child is None:
        what = f"ElasticJob {job.metadata.name} runs it"
        return Plan("ElasticJobCreated", what, groups=((Create(ELASTICJOB, elasticjob_for(job)),),))
    if job.status.observed_generation != job.metadata.generation:
        what = f"ElasticJob {job.metadata.name} follows the new spec"
        return Plan("ElasticJobUpdated", what, groups=((_update(job, seen.child),),))
    if labels := _queue_labels(job, seen.child):
        what = f"ElasticJob {job.metadata.name} follows into the queue"
        change = {"metadata": {"labels": labels}}
        patch = Patch(ELASTICJOB, job.metadata.name, seen.child.metadata.uid, change)
        return Plan("QueueChanged", what, groups=((patch,),))
    return Plan(quiet=True)


def _queue_labels(job: TrainingJob, child: ElasticJob) -> dict[str, str]:
    """The labels of its queue that the ElasticJob has not got; those that it has got elsewhere stay."""
    return {n: v for n, v in queue_labels(job).items() if child.metadata.labels.get(n) != v}


def _update(job: TrainingJob, child: ElasticJob) -> Apply:
    """The new spec, and the queue where that may change: one that may not holds up nothing else."""
    manifest = elasticjob_for(job)
    about = manifest["metadata"] | {"uid": child.metadata.uid}
    if [*the_queue_stays(child, ElasticJob.model_validate(manifest))]:
        about["labels"] = queue_labels(child)
    return Apply(ELASTICJOB, {**manifest, "metadata": about})


def elasticjob_for(job: TrainingJob) -> Manifest:
    """Return the ElasticJob that runs a TrainingJob."""
    manifest = elasticjob_of(job)
    owned = {**manifest["metadata"], "ownerReferences": [controlled_by(job)]}
    return {**manifest, "metadata": owned}


def status_of(seen: Seen, plan: Plan, now: datetime) -> TrainingJobStatus:
    """Return the status after a plan was carried out; that of a finished job stays.

    A spec is observed once its ElasticJob is seen to follow it: one that was not seen may be of an older one.
    """
    before, child = seen.job.status, seen.child
    if before.phase and before.phase.is_terminal:
        return before
    refused = plan.reason in (REFUSED, NAME_TAKEN)
    generation = seen.job.metadata.generation
    conditions = with_progress(before.conditions, _progress(child, plan, refused), generation, now)
    if child is None:
        why = f"{plan.reason}: {plan.sentence}"[:LONGEST] if refused else ""
        phase = TrainingJobPhase.NONE if refused else TrainingJobPhase.CREATING
        return TrainingJobStatus(
            phase=phase,
            reason=why,
            conditions=conditions,
            observed_generation=before.observed_generation,
        )
    return TrainingJobStatus(
        phase=PHASES[child.status.phase] if child.status.phase else TrainingJobPhase.CREATING,
        reason=(f"{plan.reason}: {plan.sentence}" if refused else _reason(child))[:LONGEST],
        conditions=conditions,
        trainers=child.status.workers,
        observed_generation=before.observed_generation if refused else generation,
    )


def _progress(child: ElasticJob | None, plan: Plan, refused: bool) -> Progress:
    """What kstatus is told: what it is told of the ElasticJob, or why that is not as it should be."""
    if refused:
        return Progress(Verdict.STALLED, plan.reason, plan.sentence)
    creating = Progress(Verdict.RECONCILING, "Creating", "the ElasticJob of this name is made")
    return (child and progress_of(child.status.conditions)) or creating


def _reason(child: ElasticJob) -> str:
    """Why a job does not run, with the sentence of its queue where it waits in one."""
    reason, admitted = child.status.reason or "", find(child.status.conditions, ADMITTED)
    waits = admitted is not None and admitted.status == "False" and admitted.reason == reason
    return f"{reason}: {admitted.message}" if admitted and waits else reason
