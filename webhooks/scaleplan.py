"""The webhook of ScalePlans: adds labels, and validates against the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elasticjob.api.v1alpha1.checks.common import is_label
from elasticjob.api.v1alpha1.checks.scaleplan import problems
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_SCALE_TYPE, MANAGED_BY, OPERATOR
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.objects.views import SERVICE_ACCOUNT
from elasticjob.kube.webhook.review import JsonPatchOperation, Reader, Review, Webhook
from elasticjob.webhooks.patches import missing_labels

SERVICE_ACCOUNTS: Final = "system:serviceaccount:"
"""How the names of users begin that are service accounts; their namespace and name follow."""


def mutate(review: Review[ScalePlan]) -> Sequence[JsonPatchOperation]:
    """Add the labels of the job and of the scale type, manual or auto."""
    plan = review.new
    if plan is None or not is_label(plan.spec.owner_job):
        return ()
    scale_type = "manual" if plan.manual else "auto"
    return missing_labels(review, {LABEL_JOB: plan.spec.owner_job, LABEL_SCALE_TYPE: scale_type})


async def master_of(user: str, namespace: str, reader: Reader) -> str:
    """Return the job whose master writes with this account, "" for others.

    RBAC has no rule for the job in a plan: who may only create ElasticJobs, and so masters, must not change
    the jobs of others. The labels of an account that the operator has made say whose it is.
    """
    if not user.startswith(prefix := f"{SERVICE_ACCOUNTS}{namespace}:"):
        return ""
    account = await reader.find(SERVICE_ACCOUNT, user.removeprefix(prefix), namespace)
    labels = account.metadata.labels if account else {}
    return labels.get(LABEL_JOB, "") if labels.get(MANAGED_BY) == OPERATOR else ""


async def validate(review: Review[ScalePlan], reader: Reader) -> Sequence[Problem]:
    """Return the problems of a plan; a new one is checked against its job as it is now."""
    plan = review.new
    if plan is None:
        return ()
    if review.operation != "CREATE":
        return problems(plan, review.old or plan, job=None)
    namespace = plan.metadata.namespace or review.namespace
    master = await master_of(review.user, namespace, reader)
    if master not in ("", plan.spec.owner_job):
        return [Problem("spec.ownerJob", f"the master of job {master} plans for its own job: write {master}")]
    if not is_label(plan.spec.owner_job):  # no job is called so
        return problems(plan, job=None)
    job = await reader.find(ELASTICJOB, plan.spec.owner_job, namespace)
    return problems(plan, job=job)


WEBHOOK = Webhook(SCALEPLAN, mutate=mutate, validate=validate)
