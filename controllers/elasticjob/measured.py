"""What is measured of a job beside its status, from what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.nodes.out_of_memory import Sizing
from elasticjob.controllers.passes.conclusions import is_over


def master_ready(seen: Seen) -> bool | None:
    """Return whether the job's master is ready; None for a job without one, or that is not meant to run, or
    of which no pod runs: it waits for machines or images, as its phase says."""
    job, latest = seen.job, seen.master.latest
    if not job.spec.needs_master or job.spec.suspend or seen.resource is None or is_over(job):
        return None
    if not any(life.running and not life.lost for life in (*seen.lives, *seen.masters)):
        return None
    return latest is not None and latest.ready


def restarts(seen: Seen) -> tuple[int, int] | None:
    """Return the restarts that the node with the fewest has left, and its budget; None: none should run."""
    if seen.job.spec.suspend or is_over(seen.job):
        return None
    nodes = ((node, seen.policy(node.role)) for node in seen.target_nodes)
    left = ((max(0, policy.budget - node.charges(policy)), policy.budget) for node, policy in nodes)
    return min(left, default=None)


def starvation(seen: Seen) -> Mapping[str, datetime]:
    """Return when nodes of which roles were killed last for lack of memory that may get no more."""
    if seen.resource is None:
        return {}
    sizing = Sizing(seen.job, seen.resource, seen.plans, seen.largest)
    ends = [(life, life.ended.at) for node in seen.target_nodes for life in node.lives if life.ended]
    found = sorted((at, life.role) for life, at in ends if at and sizing.why_no_more(life))
    return {role: at for at, role in found}
