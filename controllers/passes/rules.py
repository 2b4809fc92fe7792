"""Rules that the controllers of jobs and of nodes share, and how the first that applies is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from elasticjob.api.readings import after, span
from elasticjob.api.sentences import few
from elasticjob.api.v1alpha1.elasticjob import CleanPodPolicy, ElasticJob, RestartPolicy
from elasticjob.controllers.nodes.exits import with_consequence
from elasticjob.controllers.nodes.relaunch import Life, Policy
from elasticjob.controllers.passes.conclusions import FAILED, is_ours
from elasticjob.controllers.passes.plan import AS_SPECIFIED, Note, Plan, deletion, group, soonest
from elasticjob.kube.objects.conditions import is_true

LAST_WORDS: Final = timedelta(seconds=5)
"""How long pods may go on after the job's end, to end by themselves and keep their logs."""
FINISHED: Final = "Finished"
HAS_FINISHED: Final = "the job has finished"
HAS_FAILED: Final = "the job has failed"
MANAGED_BY_OTHER: Final = "ManagedByOther"
DELETING: Final = "Deleting"
EXPIRED: Final = "Expired"
HANDS_OFF: Final = frozenset({MANAGED_BY_OTHER, DELETING, EXPIRED})
"""Reasons of plans after which not even the status is written."""

Seen = TypeVar("Seen")
Rule = Callable[[Seen, datetime], Plan | None]


class OfJob(Protocol):
    """The input of a decision, with the job if there is one."""

    @property
    def job(self) -> ElasticJob | None: ...


def first(rules: Iterable[Rule[Seen]], seen: Seen, now: datetime) -> Plan:
    """Return the plan of the first rule that applies."""
    return next((plan for rule in rules if (plan := rule(seen, now)) is not None), AS_SPECIFIED)


def leave_it_to_others(seen: OfJob, now: datetime) -> Plan | None:
    """A job that another controller manages is not touched, not even its status."""
    if seen.job is None or is_ours(seen.job):
        return None
    return Plan(MANAGED_BY_OTHER, f"the job is managed by {seen.job.spec.managed_by}")


def leave_it_to_the_collector(seen: OfJob, now: datetime) -> Plan | None:
    """The garbage collector deletes a job's objects after it."""
    if seen.job is None or seen.job.metadata.deletion_timestamp is None:
        return None
    return Plan(DELETING, "the job is being deleted, and its pods with it")


def clean_up(job: ElasticJob, lives: Iterable[Life], now: datetime) -> Plan:
    """Return the plan for pods of a finished job: they may end by themselves, then cleanPodPolicy decides."""
    ended = job.status.completion_time or now
    failed = is_true(job.status.conditions, FAILED)
    reason, told = (FAILED, HAS_FAILED) if failed else (FINISHED, HAS_FINISHED)
    if (left := after(ended, LAST_WORDS) - now) > timedelta(0):
        return Plan(reason, told, again_in=left)
    policy = job.spec.run_policy.clean_pod_policy
    going = [life for life in lives if not life.terminating and _is_cleaned(policy, life)]
    deleted = f"{told}; deleted {few(life.name for life in going)} (cleanPodPolicy {policy})"
    return Plan(reason, told, groups=group(map(deletion, going)), details=(Note(reason, deleted),))


def silence_ends_in(lives: Iterable[Life], now: datetime) -> timedelta | None:
    """Return when to look again at pods that will be given up then; None if there are none."""
    return soonest(life.given_up - now for life in lives if life.given_up and not life.lost)


def policy(job: ElasticJob | None, role: str) -> Policy:
    """Return how often nodes of a role are created again.

    Always means OnFailure for nodes that a master waits for: when they all have succeeded, so has the job,
    and a node that began anew would take the others back to training.
    """
    spec = job.spec.replica_specs.get(role) if job else None
    if job is None or spec is None:
        return Policy()
    awaited = job.spec.needs_master and role in job.spec.training_roles
    always = spec.restart_policy is RestartPolicy.ALWAYS
    restart = RestartPolicy.ON_FAILURE if awaited and always else spec.restart_policy
    seconds = job.spec.run_policy.forgive_restarts_after_seconds
    return Policy(restart, spec.restart_count, span(seconds) if seconds else None)


def ruled_lives(job: ElasticJob | None, lives: Iterable[Life]) -> tuple[Life, ...]:
    """Return the pods of nodes, with the consequences of their ends that the job's failurePolicy gives.

    A pod that is being deleted was told to end: how it ends is not the program's failure.
    """
    rules = job.spec.run_policy.failure_policy.rules if job else []
    if not rules:
        return tuple(lives)
    return tuple(
        replace(life, ended=with_consequence(life.ended, life.role, rules))
        if life.ended is not None and not life.terminating
        else life
        for life in lives
    )


def _is_cleaned(policy: CleanPodPolicy, life: Life) -> bool:
    return policy is CleanPodPolicy.ALL or (policy is CleanPodPolicy.RUNNING and not life.over)
