"""Successes, failures and restarts of nodes, which outlive the pods in the status of the JobResource."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from elasticjob.api.readings import ranges
from elasticjob.api.v1alpha1.jobresource import JobResourceStatus
from elasticjob.controllers.nodes.relaunch import Node, Policy, Standing

FACTS: Final = ("restarts", "relaunches", "completed_indexes", "failed_indexes")


def facts_of(status: JobResourceStatus) -> dict[str, Any]:
    """Return the facts of a status, by their fields."""
    return {name: getattr(status, name) for name in FACTS}


def with_facts(
    status: JobResourceStatus, wanted: Iterable[Node], policy: Callable[[str], Policy], now: datetime
) -> JobResourceStatus:
    """Return a status with the facts of the wanted nodes; one that was removed and added again has none."""
    restarts, relaunches = dict[str, dict[str, int]](), dict[str, dict[str, int]]()
    completed, failed = dict[str, list[int]](), dict[str, list[int]]()
    for node in wanted:
        if count := node.charges(policy(node.role)):
            restarts.setdefault(node.role, {})[str(node.index)] = count
        match node.standing(policy(node.role), now):
            case Standing.DONE:
                completed.setdefault(node.role, []).append(node.index)
                continue
            case Standing.SPENT:
                failed.setdefault(node.role, []).append(node.index)
        if node.next_number:
            relaunches.setdefault(node.role, {})[str(node.index)] = node.next_number
    facts = {
        "restarts": restarts,
        "relaunches": relaunches,
        "completed_indexes": {role: ranges(each) for role, each in completed.items()},
        "failed_indexes": {role: ranges(each) for role, each in failed.items()},
    }
    return status.model_copy(update=facts)
