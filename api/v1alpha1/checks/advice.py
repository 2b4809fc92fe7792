"""Warnings about an ElasticJob: what is accepted and has no effect yet, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from elasticjob.api.v1alpha1.checks.launchers import launcher_of
from elasticjob.api.v1alpha1.elasticjob import FINISHED, ElasticJob, Gang, OptimizeMode
from elasticjob.api.v1alpha1.keeping import loss
from elasticjob.api.v1alpha1.kueue import MAX_EXEC_TIME, queue_of
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.problem import Problem

Advice = Callable[[ElasticJob], Iterable[Problem]]

OVER: Final = (
    "the job has finished and does not start again; runPolicy still says how long it and its pods are kept"
)


def advice(new: ElasticJob, old: ElasticJob | None = None, *, brain: bool = True) -> list[Problem]:
    """Return the warnings of a job that is created, or whose spec or queue differs from `old`'s.

    `brain`: whether the operator knows one.
    """
    queued = [*queues_take_no_job(new), *kueue_is_asked_for(new)]
    if old is not None and new.spec == old.spec:
        return queued if queued != [*queues_take_no_job(old), *kueue_is_asked_for(old)] else []
    if old is not None and old.status.phase in FINISHED:
        return [Problem("spec", OVER)]
    found = [*queued, *(problem for each in ADVICE for problem in each(new)), *what_is_lost(new, old)]
    return found if brain else [*found, *there_is_no_brain(new)]


def what_is_lost(new: ElasticJob, old: ElasticJob | None) -> Iterator[Problem]:
    """A job that is suspended without a checkpoint begins again."""
    if old is not None and new.spec.suspend and not old.spec.suspend and (why := loss(old)):
        yield Problem("spec.suspend", why)


CONVERTED: Final = "elasticjob convert writes it anew"
OF_VOLCANO: Final = "ElasticJobs have spec.runPolicy.scheduling.queue for it, with gang: volcano"
QUEUES: Final[Mapping[str, str]] = {
    "volcano.sh/queue-name": OF_VOLCANO,
    "scheduling.volcano.sh/queue-name": OF_VOLCANO,
    "yunikorn.apache.org/queue": "YuniKorn reads it in the template's metadata: write it there",
    "yunikorn.apache.org/app-id": "YuniKorn reads it in the template's metadata: write it there",
    "scheduling.x-k8s.io/pod-group": "ElasticJobs have spec.runPolicy.scheduling.gang: coscheduling for it",
    "runai/queue": "Run:ai reads it in the template's metadata: write it there",
    "kai.scheduler/queue": "KAI reads it in the template's metadata: write it there",
}
"""Labels and annotations of other systems that have no effect on a job of ours, and the advice."""


def queues_take_no_job(job: CustomResource) -> Iterator[Problem]:
    """Queues of other systems admit pods, or kinds that they know: none of ours."""
    for field, given in (("labels", job.metadata.labels), ("annotations", job.metadata.annotations)):
        for name in QUEUES:
            if name in given:
                yield Problem(f"metadata.{field}[{name}]", f"this has no effect: {QUEUES[name]}")


def kueue_is_asked_for(job: ElasticJob) -> Iterator[Problem]:
    """Kueue's labels count in a queue; its own kinds are created suspended, and this one is not."""
    labels, queue = job.metadata.labels, queue_of(job)
    if queue and job.spec.suspend:
        yield Problem(
            "spec.suspend",
            "the job is in no queue until this is false: "
            "Kueue does not change it, as it does for its own kinds",
        )
    if MAX_EXEC_TIME in labels and not queue:
        path = f"metadata.labels[{MAX_EXEC_TIME}]"
        yield Problem(path, "this has no effect without a queue: write runPolicy.activeDeadlineSeconds")


def there_is_no_brain(job: ElasticJob) -> Iterator[Problem]:
    """In cluster mode Brain chooses sizes; without one, the job's master does, as in single-job mode."""
    if job.spec.optimize_mode is OptimizeMode.CLUSTER and not job.spec.brain_service:
        yield Problem(
            "spec.optimizeMode",
            "the operator knows no Brain, so the job's master chooses sizes alone: write single-job, "
            "or install Brain",
        )


def fields_of_a_gang_need_one(job: ElasticJob) -> Iterator[Problem]:
    """A least number of pods, a queue and a time limit are those of a gang."""
    scheduling = job.spec.run_policy.scheduling
    if scheduling.gang is not Gang.NONE:
        return
    for field, given in (
        ("minAvailable", scheduling.min_available is not None),
        ("timeoutSeconds", scheduling.timeout_seconds is not None),
    ):
        if given:
            yield Problem(
                f"spec.runPolicy.scheduling.{field}",
                "this has no effect without a gang: write gang: required, or leave it out",
            )


def the_master_makes_no_gang(job: ElasticJob) -> Iterator[Problem]:
    """The objects of a gang are made by the operator."""
    if job.spec.managed_by and job.spec.run_policy.scheduling.gang is not Gang.NONE:
        yield Problem(
            "spec.runPolicy.scheduling.gang",
            f"the operator makes no gang for a job of {job.spec.managed_by}: leave it out",
        )


def low_priority_has_a_class(job: ElasticJob) -> Iterator[Problem]:
    """Schedulers know the priority of PriorityClasses alone."""
    if job.spec.run_policy.scheduling.low_priority_class_name:
        return
    for role, spec in job.spec.replica_specs.items():
        if spec.priority not in ("", "high"):
            yield Problem(
                f"spec.replicaSpecs[{role}].priority",
                "nodes of low priority are scheduled like the others: "
                "name a PriorityClass in spec.runPolicy.scheduling.lowPriorityClassName",
            )


def brain_is_not_asked(job: ElasticJob) -> Iterator[Problem]:
    """Brain is asked in cluster mode alone."""
    if job.spec.brain_service and job.spec.optimize_mode is not OptimizeMode.CLUSTER:
        yield Problem("spec.brainService", "this has no effect: write optimizeMode: cluster, or leave it out")


def other_launchers_find_no_master(job: ElasticJob) -> Iterator[Problem]:
    """Launchers of other systems make worlds of their own."""
    for role, spec in job.spec.replica_specs.items():
        for index, container in enumerate(spec.pod.get("containers") or ()):
            given = {field: list(map(str, container.get(field) or ())) for field in ("command", "args")}
            if found := launcher_of(given["command"], given["args"]):
                name, why = found
                field = next((f for f, words in given.items() if name.split()[0] in " ".join(words)), "args")
                path = f"spec.replicaSpecs[{role}].template.spec.containers[{index}].{field}"
                yield Problem(path, f"{name} {why}; {CONVERTED}")


ADVICE: Final[tuple[Advice, ...]] = (
    fields_of_a_gang_need_one,
    the_master_makes_no_gang,
    low_priority_has_a_class,
    brain_is_not_asked,
    other_launchers_find_no_master,
)
