"""Warnings about an ElasticJob: what is accepted and has no effect yet, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, Gang, OptimizeMode
from elasticjob.kube.objects.problem import Problem

Advice = Callable[[ElasticJob], Iterable[Problem]]


def advice(new: ElasticJob, old: ElasticJob | None = None) -> list[Problem]:
    """Return the warnings of a job that is created, or whose spec differs from `old`'s."""
    if old is not None and new.spec == old.spec:
        return []
    return [problem for each in ADVICE for problem in each(new)]


def gangs_are_not_placed(job: ElasticJob) -> Iterator[Problem]:
    """A gang, its queue, size and time limit wait for a gang scheduler's objects."""
    scheduling = job.spec.run_policy.scheduling
    for field, given in (
        ("gang", scheduling.gang is not Gang.NONE),
        ("minAvailable", scheduling.min_available is not None),
        ("queue", bool(scheduling.queue)),
        ("timeoutSeconds", scheduling.timeout_seconds is not None),
    ):
        if given:
            yield Problem(
                f"spec.runPolicy.scheduling.{field}",
                "this has no effect yet, and each pod is placed on its own: leave it out",
            )


def priorities_are_not_set(job: ElasticJob) -> Iterator[Problem]:
    """The priority of a role is read by no scheduler; a PriorityClass is."""
    for role, spec in job.spec.replica_specs.items():
        if spec.priority:
            yield Problem(
                f"spec.replicaSpecs[{role}].priority",
                "this has no effect yet: leave it out, and set priorityClassName in the role's template",
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
    gangs_are_not_placed,
    priorities_are_not_set,
    brain_is_not_asked,
    other_launchers_find_no_master,
)
