"""What is wrong with an installation: definitions, operator, webhooks, Brain, machines, jobs in trouble."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.sentences import few
from elasticjob.api.sizes.facts import Mode
from elasticjob.api.troubles import job as of_job
from elasticjob.api.troubles.causes import trouble_of
from elasticjob.api.troubles.facts import ClusterFacts, JobFacts, is_unseen
from elasticjob.api.troubles.trouble import Grade, Rule, Trouble, diagnose, well
from elasticjob.api.v1alpha1.elasticjob import FINISHED, ElasticJob
from elasticjob.kube.objects.conditions import is_true

OLDEST: Final = (1, 29)
"""The oldest Kubernetes that is supported."""
MISSED: Final = 3
"""Lease durations after which a leader is gone."""
COMPONENT: Final = "app.kubernetes.io/component"
INSTALL: Final = "helm install elasticjob charts/elasticjob -n elasticjob-system --create-namespace"


def examine(seen: ClusterFacts, now: datetime) -> tuple[Trouble, ...]:
    """Return what is wrong with an installation, and what works."""
    return diagnose(RULES, seen, now)


def is_of_an_old_version(seen: ClusterFacts, now: datetime) -> Iterable[Trouble]:
    """Kubernetes before 1.29 lacks what the definitions use."""
    number = tuple(int(part) for part in seen.version.lstrip("v").split(".")[:2] if part.isdecimal())
    if len(number) == 2 and number < OLDEST:
        return (trouble_of("OldKubernetes", None, seen.version),)
    return well(f"the API server answers: {seen.version}") if seen.version else ()


def lacks_definitions(seen: ClusterFacts, now: datetime) -> Iterator[Trouble]:
    """Without the definitions, the API server knows no jobs."""
    if seen.missing:
        yield trouble_of("DefinitionsMissing", None, few(seen.missing))


def has_older_definitions(seen: ClusterFacts, now: datetime) -> Iterator[Trouble]:
    """A definition that lacks a field of this version: the API server drops the field from every job."""
    for name, field in seen.older.items():
        yield trouble_of("DefinitionsOld", None, f"{name} lacks {field}")


def has_no_operator(seen: ClusterFacts, now: datetime) -> Iterable[Trouble]:
    """An operator holds a lease, or is one process without; either way jobs get a status within seconds."""
    if seen.missing:
        return ()
    unseen = [job for job in seen.jobs if is_unseen(job, now)]
    pods = [pod for pod in seen.programs if pod.metadata.labels.get(COMPONENT) == "operator"]
    if not seen.leases and not pods:
        return _without_operator(seen, unseen)
    namespace = (pods[0].metadata if pods else seen.leases[0].metadata).namespace
    for lease in seen.leases:
        length = timedelta(seconds=lease.spec.lease_duration_seconds or 15)
        renewed = lease.spec.renew_time
        if not lease.spec.holder_identity or renewed is None or now - renewed > MISSED * length:
            told = f"nobody leads: its lease in {namespace} is not renewed"
            return (trouble_of("OperatorSilent", None, told, since=renewed, namespace=namespace),)
    if unseen:
        told = f"it leads, and has not looked at {_names(unseen)}"
        return (trouble_of("OperatorSilent", None, told, namespace=namespace),)
    if not seen.leases:
        return () if "leases" in seen.unread else _unleased(seen, namespace)
    return well("an operator leads")


def _without_operator(seen: ClusterFacts, unseen: list[ElasticJob]) -> Iterable[Trouble]:
    if unseen:
        told = f"nothing has looked at {_names(unseen)}"
        return (trouble_of("OperatorMissing", None, told, install=INSTALL),)
    if any(_is_seen(job) for job in seen.jobs):
        dead = seen.trial is not None and seen.trial.failed  # what it has seen may be long ago
        return () if dead else well("an operator outside of the cluster looks at jobs")
    if {"leases", "pods"} <= seen.unread.keys():
        return ()  # whether one runs cannot be seen, which was_not_read_whole says
    return (trouble_of("OperatorUnseen", None, install=INSTALL),)


def _unleased(seen: ClusterFacts, namespace: str) -> Iterable[Trouble]:
    """Its pods are there and no lease is: it has not started, or is a single one that takes none."""
    if any(_is_seen(job) for job in seen.jobs):
        return well("an operator looks at jobs")
    told = "its pods are there, and none of them leads"
    return (trouble_of("OperatorSilent", None, told, grade=Grade.DOUBTFUL, namespace=namespace),)


def has_programs_that_do_not_run(seen: ClusterFacts, now: datetime) -> Iterator[Trouble]:
    """Pods of operator, Brain and di-server that are not ready."""
    for pod in seen.programs:
        over = pod.status.phase in ("Succeeded", "Failed")  # evicted, say: its Deployment has made another
        if pod.metadata.deletion_timestamp or is_true(pod.status.conditions, "Ready") or over:
            continue
        waiting = next((s.state.waiting for s in pod.status.container_statuses if s.state.waiting), None)
        why = f"{waiting.reason} {waiting.message}".strip() if waiting else pod.status.phase
        meta = pod.metadata
        told = f"{meta.labels.get(COMPONENT, 'pod')} {meta.name}: {why}"
        yield trouble_of("ProgramNotReady", None, told, pod=meta.name, namespace=meta.namespace)


def has_webhooks_that_do_not_answer(seen: ClusterFacts, now: datetime) -> Iterable[Trouble]:
    """A job that the webhooks must refuse is sent as a dry run."""
    if seen.trial is None:
        return ()
    if seen.trial.failed:
        return (trouble_of("WebhooksFail", None, seen.trial.failed),)
    if not seen.trial.refused:
        told = "they are registered, and let a job pass" if seen.webhooks else "they are not registered"
        return (trouble_of("WebhooksAbsent", None, told),)
    return well("webhooks check jobs")


def has_no_brain_for_its_jobs(seen: ClusterFacts, now: datetime) -> Iterator[Trouble]:
    """Jobs in cluster mode ask Brain for their sizes; without it their masters decide alone."""
    asking = [
        job for job in _going(seen) if job.spec.optimize_mode is Mode.CLUSTER and not job.spec.brain_service
    ]
    brain = any(pod.metadata.labels.get(COMPONENT) == "brain" for pod in seen.programs)
    if asking and not brain and "pods" not in seen.unread:
        yield trouble_of("BrainMissing", None, _names(asking))


def has_nodes_that_are_not_ready(seen: ClusterFacts, now: datetime) -> Iterable[Trouble]:
    """Machines that take no pods."""
    away = [node for node in seen.nodes if not is_true(node.status.conditions, "Ready")]
    cordoned = [node for node in seen.nodes if node.spec.unschedulable and node not in away]
    if seen.nodes and len(away) + len(cordoned) == len(seen.nodes):
        return (trouble_of("NoMachines", None, few(node.metadata.name for node in seen.nodes)),)
    if away:
        return (trouble_of("MachinesAway", None, few(node.metadata.name for node in away)),)
    return well(f"machines that are ready: {len(seen.nodes)}") if seen.nodes else ()


def has_jobs_in_trouble(seen: ClusterFacts, now: datetime) -> Iterator[Trouble]:
    """Jobs in which something is wrong; those that failed, for a day."""
    for job in seen.jobs:
        ended = job.status.completion_time
        if ended is not None and now - ended >= timedelta(days=1):
            continue
        first = of_job.examine(JobFacts(job), now)[0]
        if first.grade is Grade.WRONG and first.cause != "NotReconciled":
            told = f"{job.metadata.namespace}/{job.metadata.name} is {job.status.phase}: {first.sentence}"
            yield trouble_of("JobInTrouble", job, told, since=first.since)


def counts_its_jobs(seen: ClusterFacts, now: datetime) -> Iterable[Trouble]:
    """The number of jobs."""
    if seen.missing or "elasticjobs" in seen.unread:
        return ()
    return well(f"jobs: {len(seen.jobs)}, not finished: {len(_going(seen))}")


def was_not_read_whole(seen: ClusterFacts, now: datetime) -> Iterator[Trouble]:
    """What did not answer, or what the reader has no right to see."""
    for what, why in seen.unread.items():
        yield trouble_of("NotRead", None, f"{what}: {why}")


RULES: Final[tuple[Rule[ClusterFacts], ...]] = (
    is_of_an_old_version,
    lacks_definitions,
    has_older_definitions,
    has_no_operator,
    has_programs_that_do_not_run,
    has_webhooks_that_do_not_answer,
    has_no_brain_for_its_jobs,
    has_nodes_that_are_not_ready,
    has_jobs_in_trouble,
    counts_its_jobs,
    was_not_read_whole,
)


def _going(seen: ClusterFacts) -> list[ElasticJob]:
    return [job for job in seen.jobs if job.status.phase not in FINISHED]


def _is_seen(job: ElasticJob) -> bool:
    return job.spec.is_ours and job.status.observed_generation == job.metadata.generation


def _names(jobs: Iterable[ElasticJob]) -> str:
    return few(f"{job.metadata.namespace}/{job.metadata.name}" for job in jobs)
