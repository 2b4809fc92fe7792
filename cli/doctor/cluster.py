"""What is wrong with an installation: definitions, operator, webhooks, Brain, nodes, and jobs in trouble."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.sentences import few
from elasticjob.api.sizes.facts import Mode
from elasticjob.api.v1alpha1.elasticjob import FINISHED, ElasticJob
from elasticjob.cli.doctor.finding import Finding, Grade, Rule, diagnose, doubtful, well, wrong
from elasticjob.cli.doctor.seen import Cluster, ago, is_unseen
from elasticjob.controllers.passes.conclusions import is_ours
from elasticjob.kube.objects.conditions import find, is_true

OLDEST: Final = (1, 29)
"""The oldest Kubernetes that is supported."""
MISSED: Final = 3
"""Lease durations after which a leader is gone."""
COMPONENT: Final = "app.kubernetes.io/component"
INSTALL: Final = "helm install elasticjob charts/elasticjob -n elasticjob-system --create-namespace"


def examine(seen: Cluster, now: datetime) -> tuple[Finding, ...]:
    """Return what is wrong with an installation, and what works."""
    return diagnose(RULES, seen, now)


def is_of_an_old_version(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """Kubernetes before 1.29 lacks what the definitions use."""
    number = tuple(int(part) for part in seen.version.lstrip("v").split(".")[:2] if part.isdecimal())
    if len(number) == 2 and number < OLDEST:
        return wrong(f"the API server is {seen.version}; elasticjob needs Kubernetes 1.29 or newer")
    return well(f"the API server answers: {seen.version}") if seen.version else ()


def lacks_definitions(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """Without the definitions, the API server knows no jobs."""
    if not seen.missing:
        return ()
    return wrong(f"the API server does not know {few(seen.missing)}", "elasticjob crds --apply", INSTALL)


def has_older_definitions(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """A definition that lacks a field of this version: the API server drops the field from every job."""
    for name, field in seen.older.items():
        yield Finding(
            Grade.WRONG,
            f"the definition {name} lacks {field}, which this version has: the field is dropped from objects",
            ("elasticjob crds --apply",),
        )


def has_no_operator(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """An operator holds a lease, or is one process without; either way jobs get a status within seconds."""
    if seen.missing:
        return ()
    unseen = [job for job in seen.jobs if is_unseen(job, now)]
    pods = [pod for pod in seen.programs if pod.metadata.labels.get(COMPONENT) == "operator"]
    if not seen.leases and not pods:
        if unseen:
            return wrong(f"no operator runs: nothing has looked at {_names(unseen)}", INSTALL)
        if any(_is_seen(job) for job in seen.jobs):
            return well("an operator outside of the cluster looks at jobs")
        if {"leases", "pods"} <= seen.unread.keys():
            return ()  # whether one runs cannot be seen, which was_not_read_whole says
        return doubtful("no operator is seen: it may run outside of the cluster, or not at all", INSTALL)
    namespace = (pods[0].metadata if pods else seen.leases[0].metadata).namespace
    logs = f"kubectl logs -n {namespace} -l {COMPONENT}=operator --tail 50"
    for lease in seen.leases:
        length = timedelta(seconds=lease.spec.lease_duration_seconds or 15)
        renewed = lease.spec.renew_time
        if not lease.spec.holder_identity or renewed is None or now - renewed > MISSED * length:
            since = f"for {ago(renewed, now)}" if renewed else "ever"
            return wrong(
                f"no operator leads: its lease in {namespace} has not been renewed {since}",
                f"kubectl get pods -n {namespace}",
                logs,
            )
    if unseen:
        return wrong(f"the operator runs, and {_names(unseen)} have not been looked at", logs)
    return well("an operator leads")


def has_programs_that_do_not_run(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """Pods of operator, Brain and di-server that are not ready."""
    for pod in seen.programs:
        over = pod.status.phase in ("Succeeded", "Failed")  # evicted, say: its Deployment has made another
        if pod.metadata.deletion_timestamp or is_true(pod.status.conditions, "Ready") or over:
            continue
        waiting = next((s.state.waiting for s in pod.status.container_statuses if s.state.waiting), None)
        why = f"{waiting.reason} {waiting.message}".strip() if waiting else pod.status.phase
        yield Finding(
            Grade.WRONG,
            f"{pod.metadata.labels.get(COMPONENT, 'pod')} {pod.metadata.name} is not ready: {why}",
            (
                f"kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace}",
                f"kubectl logs {pod.metadata.name} -n {pod.metadata.namespace} --tail 50",
            ),
        )


def has_webhooks_that_do_not_answer(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """A job that the webhooks must refuse is sent as a dry run."""
    if seen.trial is None:
        return ()
    if seen.trial.failed:
        return wrong(
            f"jobs cannot be created or changed: {seen.trial.failed}",
            "kubectl get endpoints -A | grep elasticjob-webhooks",
            "kubectl get validatingwebhookconfigurations",
        )
    if not seen.trial.refused:
        told = (
            "are registered and let a job pass that they must refuse"
            if seen.webhooks
            else "are not registered"
        )
        return doubtful(
            f"webhooks {told}: jobs that cannot work are accepted, and fail later",
            "kubectl get validatingwebhookconfigurations",
        )
    return well("webhooks check jobs")


def has_no_brain_for_its_jobs(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """Jobs in cluster mode ask Brain for their sizes; without it their masters decide alone."""
    asking = [
        job for job in _going(seen) if job.spec.optimize_mode is Mode.CLUSTER and not job.spec.brain_service
    ]
    brain = any(pod.metadata.labels.get(COMPONENT) == "brain" for pod in seen.programs)
    if not asking or brain or "pods" in seen.unread:
        return ()
    return doubtful(
        f"{_names(asking)} ask Brain for sizes, and no Brain is seen: their masters decide alone",
        "helm upgrade elasticjob charts/elasticjob --reuse-values --set brain.enabled=true",
    )


def has_nodes_that_are_not_ready(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """Nodes that take no pods."""
    away = [node for node in seen.nodes if not is_true(node.status.conditions, "Ready")]
    cordoned = [node for node in seen.nodes if node.spec.unschedulable and node not in away]
    if seen.nodes and len(away) + len(cordoned) == len(seen.nodes):
        return wrong("no node takes pods", "kubectl get nodes")
    if away:
        return doubtful(f"not ready: {few(node.metadata.name for node in away)}", "kubectl describe nodes")
    return well(f"nodes that are ready: {len(seen.nodes)}") if seen.nodes else ()


def has_jobs_in_trouble(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """Jobs whose nodes do not run, or that failed within a day."""
    for job in seen.jobs:
        status, meta = job.status, job.metadata
        recent = status.completion_time is None or now - status.completion_time < timedelta(days=1)
        if not status.reason or not recent:
            continue
        failed, running = find(status.conditions, "Failed"), find(status.conditions, "Running")
        said = failed if failed and failed.status == "True" else running
        why = f"{status.reason}: {said.message}" if said else status.reason
        yield Finding(
            Grade.DOUBTFUL,
            f"{meta.namespace}/{meta.name} is {status.phase}: {why}",
            (f"elasticjob doctor {meta.name} -n {meta.namespace}",),
        )


def counts_its_jobs(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """The number of jobs."""
    if seen.missing or "elasticjobs" in seen.unread:
        return ()
    return well(f"jobs: {len(seen.jobs)}, not finished: {len(_going(seen))}")


def was_not_read_whole(seen: Cluster, now: datetime) -> Iterable[Finding]:
    """What the reader has no right to see."""
    for what, why in seen.unread.items():
        yield Finding(Grade.UNKNOWN, f"{what} cannot be read: {why}")


RULES: Final[tuple[Rule[Cluster], ...]] = (
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


def _going(seen: Cluster) -> list[ElasticJob]:
    return [job for job in seen.jobs if job.status.phase not in FINISHED]


def _is_seen(job: ElasticJob) -> bool:
    return is_ours(job) and job.status.observed_generation == job.metadata.generation


def _names(jobs: Iterable[ElasticJob]) -> str:
    return few(f"{job.metadata.namespace}/{job.metadata.name}" for job in jobs)
