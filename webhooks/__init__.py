"""Admission of our kinds: one thin file each; the decisions are in api/v1alpha1/checks.

Defaults are in the CRDs' schemas, where everybody sees them; nothing that a user applied is rewritten, or
GitOps tools would see a difference that never goes away. What mutation adds are labels by which people and
caches find an object.
"""

from __future__ import annotations

from typing import Any, Final

from elasticjob.kube.review import Webhook
from elasticjob.webhooks import elasticjob, jobresource, scaleplan

WEBHOOKS: Final[tuple[Webhook[Any], ...]] = (elasticjob.WEBHOOK, jobresource.WEBHOOK, scaleplan.WEBHOOK)
