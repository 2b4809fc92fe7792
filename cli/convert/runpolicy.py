"""Kubeflow's RunPolicy, which many systems have, as the runPolicy of an ElasticJob."""

from __future__ import annotations

from typing import Final

from elasticjob.cli.convert.pods import without_empty
from elasticjob.cli.convert.system import Fields
from elasticjob.kube.objects.kinds import Manifest

TIMED: Final = "as scheduling.timeoutSeconds, with gang: coscheduling"
NO_QUEUE: Final = "Volcano's gangs have no time limit: leave it out"


def run_policy(fields: Fields) -> Manifest:
    """Return the runPolicy that means the same as the fields of a RunPolicy."""
    found: Manifest = {
        "backoffLimit": fields.number("backoffLimit"),
        "activeDeadlineSeconds": fields.number("activeDeadlineSeconds"),
        "ttlSecondsAfterFinished": fields.number("ttlSecondsAfterFinished"),
        "cleanPodPolicy": clean_pod_policy(fields),
        "scheduling": scheduling(fields.below("schedulingPolicy")),
    }
    return without_empty(found)


def clean_pod_policy(fields: Fields) -> str:
    """Return All, Running or None; other words are dropped."""
    given = "None" if fields.peek("cleanPodPolicy") is None else fields.peek("cleanPodPolicy")
    if "cleanPodPolicy" not in fields:
        return ""
    if given in ("All", "Running", "None"):
        fields.keep("cleanPodPolicy")
        return str(given)
    fields.drop("cleanPodPolicy", "write All, Running or None in runPolicy.cleanPodPolicy")
    return ""


def scheduling(fields: Fields) -> Manifest:
    """Return the gang of a SchedulingPolicy: by Volcano where there is a queue."""
    queue = fields.text("queue", "as scheduling.queue, with gang: volcano")
    priority = fields.text("priorityClass", "as scheduling.priorityClassName")
    fields.drop("minResources", "a gang counts the requests of its pods", harmless=True)
    if queue:
        fields.drop("scheduleTimeoutSeconds", NO_QUEUE)
        gang, timeout = "volcano", None
    else:
        timeout = fields.number("scheduleTimeoutSeconds", TIMED)
        gang = "coscheduling" if timeout is not None else "preferred" if fields.peek("minAvailable") else ""
    least = fields.number("minAvailable", f"as scheduling.minAvailable, with gang: {gang}")
    found: Manifest = {
        "gang": gang,
        "queue": queue,
        "minAvailable": least,
        "timeoutSeconds": timeout,
        "priorityClassName": priority,
    }
    return without_empty(found)


def manager(fields: Fields, operator: str) -> str:
    """Return managedBy; "" where that is the system's own operator."""
    if fields.peek("managedBy") in ("", operator):
        fields.drop("managedBy", "is the operator itself", harmless=True)
        return ""
    return fields.text("managedBy", "as spec.managedBy")
