"""Admission webhooks: one file for each kind; the checks are in api/v1alpha1/checks.

Nothing that a user wrote is changed: GitOps tools would see a difference that never goes away. Mutation adds
labels. Defaults are in the schemas of the CRDs, and what older forms mean is found where they are read
(api/v1alpha1/older).
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
