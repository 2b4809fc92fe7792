"""What an API server says of pods beside their schema: budgets refuse evictions, quotas refuse new pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from elasticjob.devcluster.server.model.selectors import label_selector, matches_labels
from elasticjob.kube.errors import Forbidden, ServerError, TooManyRequests
from elasticjob.kube.objects.kinds import Manifest
from lab.truths.quota import ENDED, is_true

VIOLATED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
SEVERAL: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)


def check_budgets(pod: Manifest, pods: Iterable[Manifest], budgets: Iterable[Manifest]) -> None:
    """Raise TooManyRequests where an eviction leaves fewer ready pods than a budget's minAvailable."""
    if pod["status"].get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
        return
    kept = [each for each in budgets if _selects(each, pod)]
    if len(kept) > 1:
        raise ServerError(500, "InternalError", SEVERAL)
    for budget in kept:
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow" and not _is_healthy(pod):
            return
        healthy = sum(_selects(budget, each) and _is_healthy(each) for each in pods)
        if healthy <= budget["spec"]["minAvailable"]:
            raise TooManyRequests(429, "TooManyRequests", VIOLATED)


def check_quota(pod: Manifest, pods: Iterable[Manifest], most: int) -> None:
    """Raise Forbidden where a namespace has as many pods as its ResourceQuota allows."""
    about = pod["metadata"]
    used = sum(
        each["metadata"]["namespace"] == about["namespace"] and each["status"].get("phase") not in ENDED
        for each in pods
    )
    if used >= most:
        why = f"exceeded quota: pods, requested: pods=1, used: pods={used}, limited: pods={most}"
        raise Forbidden(403, "Forbidden", f'pods "{about["name"]}" is forbidden: {why}')


def _selects(budget: Manifest, pod: Manifest) -> bool:
    one, other = budget["metadata"], pod["metadata"]
    chosen = label_selector(budget["spec"].get("selector"))
    return one["namespace"] == other["namespace"] and matches_labels(chosen, other.get("labels"))


def _is_healthy(pod: Manifest) -> bool:
    """Return whether the disruption controller counts a pod."""
    return is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]
