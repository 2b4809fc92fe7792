"""The webhook of ElasticJobs: validates, and warns of what has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from elasticjob.api.v1alpha1.checks.advice import advice
from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import JsonPatchOperation, Review, Webhook
from elasticjob.webhooks.belongings import guard
from elasticjob.webhooks.repeated import refuse_repeated


def mutate(review: Review[ElasticJob]) -> Sequence[JsonPatchOperation]:
    """Change nothing. Raises Refusal for members that are there twice, before the server's schema does."""
    if review.new is not None:
        refuse_repeated(dict(templates(review.new)), dict(templates(review.old)) if review.old else {})
    return ()


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
    found = [*advice(review.new, review.old, brain=brain), *left_to_the_optimizer(review)]
    return [str(each) for each in found]


def left_to_the_optimizer(review: Review[ElasticJob]) -> Iterator[Problem]:
    """Find the roles in which a number becomes 0 and means that the optimizer decides."""
    before = review.old.spec.replica_specs if review.old else {}
    for role, spec in (review.raw["spec"].get("replicaSpecs") or {}).items():
        undecided = review.new is not None and review.new.spec.replica_specs[role].replicas is None
        if spec.get("replicas") == 0 and undecided and role in before and before[role].replicas is not None:
            why = "0 leaves the number to the optimizer: for none write minReplicas: 0, or suspend: true"
            yield Problem(f"spec.replicaSpecs[{role}].replicas", why)


WEBHOOK = Webhook(ELASTICJOB, mutate=mutate, validate=guard(validate), warn=warn)
WITHOUT_BRAIN = replace(WEBHOOK, warn=partial(warn, brain=False))
"""The same of an operator that knows no Brain."""
