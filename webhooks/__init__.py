"""Admission webhooks: one file for each kind; the checks are in api/v1alpha1/checks.

Defaults are in the schemas of the CRDs. Mutation adds labels and what older forms mean (api/v1alpha1/older):
if it changed a field of today's form, GitOps tools would see a difference that never goes away. They see one
for older words, pod names and `replicas: 0`, until the manifest says what is stored.
"""

from __future__ import annotations

from typing import Any, Final

from elasticjob.kube.webhook.review import Webhook
from elasticjob.webhooks import dijob, elasticjob, jobresource, scaleplan, trainingjob

WEBHOOKS: Final[tuple[Webhook[Any], ...]] = (
    elasticjob.WEBHOOK,
    jobresource.WEBHOOK,
    scaleplan.WEBHOOK,
    trainingjob.WEBHOOK,
    dijob.WEBHOOK,
    dijob.CONFIG_WEBHOOK,
)
