"""Admission webhooks: one file for each kind; the checks are in api/v1alpha1/checks.

Defaults are in the schemas of the CRDs. Mutation only adds labels: if it changed a field that a user applied,
GitOps tools would see a difference that never goes away.
"""

from __future__ import annotations

from typing import Any, Final

from elasticjob.kube.webhook.review import Webhook
from elasticjob.webhooks import elasticjob, jobresource, scaleplan

WEBHOOKS: Final[tuple[Webhook[Any], ...]] = (elasticjob.WEBHOOK, jobresource.WEBHOOK, scaleplan.WEBHOOK)
