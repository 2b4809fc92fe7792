"""Warnings about an ElasticJob: what is accepted and has no effect yet, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import FINISHED, ElasticJob, Gang, OptimizeMode
from elasticjob.kube.objects.problem import Problem

Advice = Callable[[ElasticJob], Iterable[Problem]]

OVER: Final = (
    "the job has finished and does not start again; runPolicy still says how long it and its pods are kept"
)


def advice(new: ElasticJob, old: ElasticJob | None = None) -> list[Problem]:
    """Return the warnings of a job that is created, or whose spec differs from `old`'s."""
    if old is not None and new.spec == old.spec:
        return []
    if old is not None and old.status.phase in FINISHED:
        return [Problem("spec", OVER)]
    return [problem for each in ADVICE for problem in each(new)]


def fields_of_a_gang_need_one(job: ElasticJob) -> Iterator[Problem]:
    """A least number of pods, a queue and a time limit are those of a gang."""
    scheduling = job.spec.run_policy.scheduling
    if scheduling.gang is not Gang.NONE:
        return
    for field, given in (
        ("minAvailable", scheduling.min_available is not None),
        ("queue", bool(scheduling.queue)),
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


LAUNCHER: Final = re.compile(r"\bdlrover-run\b|\bdlrover\.(?:trainer|python)(?:\.\w+)*")


def other_launchers_find_no_master(job: ElasticJob) -> Iterator[Problem]:
    """A launcher of the original system speaks another protocol than this system's master."""
    for role, spec in job.spec.replica_specs.items():
        for index, container in enumerate(spec.pod.get("containers") or ()):
            for field in ("command", "args"):
                words = " ".join(container.get(field) or ())
                if found := LAUNCHER.search(words):
                    yield Problem(
                        f"spec.replicaSpecs[{role}].template.spec.containers[{index}].{field}",
                        f"{found[0]} cannot speak to this job's master: "
                        "write elasticjob run, with torchrun's flags and your script",
                    )


ADVICE: Final[tuple[Advice, ...]] = (
    fields_of_a_gang_need_one,
    the_master_makes_no_gang,
    low_priority_has_a_class,
    brain_is_not_asked,
    other_launchers_find_no_master,
)
