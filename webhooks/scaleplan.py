"""The webhook of ScalePlans: reads older forms, adds labels, and validates against the job."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.api.v1alpha1.checks.common import is_label
from elasticjob.api.v1alpha1.checks.scaleplan import problems
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_SCALE_TYPE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.older import plan_changes
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import JsonPatchOperation, Reader, Review, Webhook
from elasticjob.webhooks.patches import changed_spec, missing_labels


def mutate(review: Review[ScalePlan]) -> Sequence[JsonPatchOperation]:
    """Add the labels of the job and of the scale type, manual or auto; write older forms into today's."""
    plan = review.new
    if plan is None or not is_label(plan.spec.owner_job):
        return ()
    scale_type = "manual" if plan.manual else "auto"
    labels = missing_labels(review, {LABEL_JOB: plan.spec.owner_job, LABEL_SCALE_TYPE: scale_type})
    return [*labels, *changed_spec(plan_changes(review.raw["spec"]))]


async def validate(review: Review[ScalePlan], reader: Reader) -> Sequence[Problem]:
    """Return the problems of a plan; a new one is checked against its job as it is now."""
    plan = review.new
    if plan is None:
        return ()
    if review.operation != "CREATE":
        return problems(plan, review.old or plan, job=None)
    namespace = plan.metadata.namespace or review.namespace
    job = await reader.find(ELASTICJOB, plan.spec.owner_job, namespace)
    return problems(plan, job=job)


WEBHOOK = Webhook(SCALEPLAN, mutate=mutate, validate=validate)
