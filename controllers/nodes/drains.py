"""Which machines are about to leave, as their Nodes say, and what follows for the pods on them.

    cordoned, or a tool will empty it        → a standby is made; the pod stays until it is evicted
    the kubelet does not report              → the same
    a cloud takes the machine in minutes     → the pod leaves now, and is made again
    it does, but the taint only discourages  → a standby is made: the next pod might come back

A pod that tolerates the taint stays: its user says so. So does a pod whose template names its machine.
Where it names a scheduler, which may not heed taints, a pod that has just come stays for a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from elasticjob.api.readings import after
from elasticjob.api.v1alpha1.placing import CLOSED, is_silent
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Node

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
"""The taint of a Node that is cordoned."""
LEAVES: Final = (
    UNSCHEDULABLE,
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/rebalance-recommendation",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
)
"""Keys of taints of machines from which pods will be evicted."""
ENDS: Final = (
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
)
"""Keys of taints of machines that end within minutes, whatever anybody does."""
CONDITIONS: Final = ("MaintenancePlanned", "DrainInProgress")
"""Conditions of machines from which pods will be evicted."""
SILENT: Final = "does not report"
DEFAULT_SCHEDULER: Final = "default-scheduler"
PATIENCE: Final = timedelta(minutes=1)
"""How long a pod stays at least where another scheduler may have brought it back."""

Taint = Mapping[str, Any]


@dataclass(frozen=True)
class Notice:
    """A machine is about to leave: why, whether at once, and the taint that says so."""

    why: str
    at_once: bool = False
    taint: Taint | None = None

    def holds_for(self, tolerations: Iterable[Taint]) -> bool:
        """Whether a pod with these tolerations has to leave, too."""
        return self.taint is None or not any(_tolerates(each, self.taint) for each in tolerations)


def notices(node: Node, more: Iterable[str] = ()) -> tuple[Notice, ...]:
    """Return what a Node says about its end, the most urgent first; `more` are keys of taints like ENDS."""
    return tuple(sorted(_notices(node, frozenset((*ENDS, *more))), key=lambda notice: not notice.at_once))


def leaves_in(pod: Manifest, since: datetime | None, now: datetime) -> timedelta | None:
    """Return when a pod leaves a machine that ends, by the pod spec of its template; None: never.

    `since` is when it was placed there.
    """
    if pod.get("nodeName"):
        return None
    heeds_taints = pod.get("schedulerName", DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
    return timedelta(0) if heeds_taints or since is None else max(after(since, PATIENCE) - now, timedelta(0))


def _notices(node: Node, ends: frozenset[str]) -> Iterator[Notice]:
    taints = {str(taint.get("key")): taint for taint in node.spec.taints}
    if node.spec.unschedulable:
        taints.setdefault(UNSCHEDULABLE, {"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    for key, taint in taints.items():
        if key in ends:
            closed = taint.get("effect") in CLOSED
            yield Notice(f"ends within minutes (taint {key})", at_once=closed, taint=taint)
        elif key in LEAVES:
            why = "is cordoned" if key == UNSCHEDULABLE else f"will be emptied (taint {key})"
            yield Notice(why, taint=taint)
    for condition in node.status.conditions:
        if condition.type in CONDITIONS and condition.status == "True":
            yield Notice(f"will be emptied (condition {condition.type})")
    if is_silent(node):
        yield Notice(SILENT)


def _tolerates(toleration: Taint, taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    if toleration.get("operator") == "Exists":
        return key in ("", taint.get("key"))
    return bool(key == taint.get("key") and value == (taint.get("value") or ""))
