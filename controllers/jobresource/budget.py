"""The PodDisruptionBudget of a job: how many of its workers evictions leave running.

1. One node at a time leaves, and the next one when its replacement is ready.
2. Never fewer than minReplicas stay: a drain waits until a standby is ready.
3. A node that is not ready counts for a minute: there may be no machine for its next pod, or that may end at
   once, and again. One without a pod does not count: it waits for quota, say, and nothing tells how long.
4. There is none before the first worker runs: pods that do not run yet may be evicted whatever it says.

The budget names a number (minAvailable), so the disruption controller needs no scale subresource. It selects
workers only: the master starts again from its snapshot, wherever it is evicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.readings import after
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import CleanPodPolicy, ElasticJob
from elasticjob.controllers.jobresource.decide import Seen
from elasticjob.controllers.nodes.relaunch import Node, Standing
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.conclusions import is_over
from elasticjob.controllers.passes.plan import CreateOrApply, soonest
from elasticjob.kube.objects.views import POD_DISRUPTION_BUDGET

PATIENCE: Final = timedelta(minutes=1)
"""How long a replacement may take to be ready."""


@dataclass(frozen=True)
class Budget:
    """The workers that evictions leave running, and when to count them again."""

    least: int
    again_in: timedelta | None = None


def budget(seen: Seen, now: datetime) -> Budget | None:
    """Return the budget of a job; None where it has none, or the one it has may stay."""
    if seen.job is None or not seen.job.spec.needs_master or WORKER not in seen.desired:
        return None
    if is_over(seen.job):
        return Budget(0) if seen.job.spec.run_policy.clean_pod_policy is CleanPodPolicy.NONE else None
    if seen.resource.spec.suspend:
        return None
    if seen.resource.status.min_available is None and not _a_worker_runs(seen):
        return None
    nodes = [node for node in seen.target_nodes.values() if node.role == WORKER]
    nodes += [extra.node for extra in seen.extra.values()]
    nodes = [node for node in nodes if node.latest and not _is_over(seen, node, now)]
    ends = [_waited_for_until(node) for node in nodes]
    counted = sum(end is None or end > now for end in ends)
    least = min(seen.job.spec.range_of(WORKER).lowest, seen.desired[WORKER])
    again_in = soonest(end - now for end in ends if end and end > now)
    return Budget(max(least, counted - 1, 0), again_in)


def written(job: ElasticJob, budget: Budget) -> CreateOrApply:
    """Return the write of a job's budget; a budget of its name that a user has made stays as it is."""
    name = job.metadata.name
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": names.job_labels(name, "job"),
        "ownerReferences": [controlled_by(job)],
    }
    spec = {
        "minAvailable": budget.least,
        "selector": {"matchLabels": {LABEL_JOB: name, LABEL_ROLE: WORKER}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return CreateOrApply(POD_DISRUPTION_BUDGET, manifest_of(POD_DISRUPTION_BUDGET, metadata, spec=spec))


def _a_worker_runs(seen: Seen) -> bool:
    return any(life.role == WORKER and life.running for life in seen.lives)


def _waited_for_until(node: Node) -> datetime | None:
    """Return until when a node that is not ready counts as one that soon will be; None for others.

    Pods that were there for less than a minute, one after another, have one minute together.
    """
    life, since = node.latest, None
    if life is None or (life.ready and life.alive and not life.terminating):
        return None
    for life in reversed(node.lives):
        end = life.deleted_at or (life.ended and life.ended.at)
        since = life.created or end or since
        if end and (life.created is None or end - life.created > PATIENCE):
            since = end
            break
    return after(since, PATIENCE) if since else None


def _is_over(seen: Seen, node: Node, now: datetime) -> bool:
    return node.standing(seen.policy(node.role), now) in (Standing.DONE, Standing.SPENT)
