"""The webhook of ElasticJobs: reads older forms, validates, and warns of what has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from elasticjob.api.v1alpha1.checks.advice import advice
from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.older import job_changes
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import JsonPatchOperation, Review, Webhook
from elasticjob.webhooks.patches import changed_spec
from elasticjob.webhooks.repeated import refuse_repeated


def mutate(review: Review[ElasticJob]) -> Sequence[JsonPatchOperation]:
    """Write what older forms mean into today's fields. Raises Refusal for members that are there twice."""
    if review.new is None:
        return ()
    refuse_repeated(dict(templates(review.new)), dict(templates(review.old)) if review.old else {})
    roles = review.new.spec.replica_specs if review.old is None else review.old.spec.replica_specs
    numbered = {role for role, spec in roles.items() if spec.replicas is not None}
    return changed_spec(job_changes(review.raw["spec"], numbered if review.operation != "CREATE" else ()))


def templates(job: ElasticJob) -> Iterator[tuple[str, Manifest]]:
    """Find the templates of the roles, by their paths."""
    for role, spec in job.spec.replica_specs.items():
        yield f"spec.replicaSpecs[{role}].template", spec.template


def validate(review: Review[ElasticJob]) -> Sequence[Problem]:
    """Return the problems of a job that is created or updated."""
    return problems(review.new, review.old) if review.new is not None else ()


def warn(review: Review[ElasticJob], *, brain: bool = True) -> Sequence[str]:
    """Return a sentence for each thing that is accepted without effect; a refused job needs none."""
    if review.new is None or problems(review.new, review.old):
        return ()
    return [str(each) for each in advice(review.new, review.old, brain=brain)]


WEBHOOK = Webhook(ELASTICJOB, mutate=mutate, validate=validate, warn=warn)
WITHOUT_BRAIN = replace(WEBHOOK, warn=partial(warn, brain=False))
"""The same of an operator that knows no Brain."""
