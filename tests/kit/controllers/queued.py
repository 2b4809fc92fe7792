"""Workloads, queues and demands for tests, as short as they can be said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.kueue.demand import SLICE, PodSetRequest, QueueRequest
from elasticjob.controllers.kueue.workload import IN_USE, JOB_UID, ClusterQueue, Workload
from elasticjob.kube.objects.kinds import Key, Manifest
from lab.build.jobs import NOW, at

POD: Manifest = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}


def demand(wanted: int = 1, least: int = 1, *, unit: int = 1, most: int = 8, **more: Any) -> QueueRequest:
    """A job of workers that ask for one core each."""
    roles = (PodSetRequest("worker", POD, least, wanted, unit, most),)
    return QueueRequest(ELASTICJOB, Key("ml", "digits"), "job-1", {"uid": "job-1"}, "team", roles, **more)


BASE = demand().base


def workload(
    name: str = BASE,
    count: int = 1,
    *,
    queue: str = "all",
    true: Mapping[str, str] | None = None,
    age: int = 60,
    job: str = "digits",
    slice_: bool | None = None,
    finalizer: bool = True,
    deleted: bool = False,
    refused: str = "",
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> Workload:
    """A Workload of so many workers; `true` are its conditions with their reasons."""
    created = NOW - timedelta(seconds=age)
    given = {} if true is None else true
    reserved = "QuotaReserved" in given
    usage = {"name": "worker", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(count)}, "count": count}
    part = name.startswith(f"{BASE}-") if slice_ is None else slice_
    no = {**condition("QuotaReserved", refused, created), "status": "False"}
    labels = ({LABEL_JOB: job, JOB_UID: "job-1"} if job else {}) | ({SLICE: "worker"} if part else {})
    found = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": labels,
            "annotations": dict(annotations or {}),
            "finalizers": [IN_USE] if finalizer else [],
            "creationTimestamp": at(created),
            **({"deletionTimestamp": at(NOW)} if deleted else {}),
        },
        "spec": {
            "queueName": "team",
            "podSets": [{"name": "worker", "count": count, "template": POD}],
            **more,
        },
        "status": {
            "conditions": [
                *(condition(type_, reason, created) for type_, reason in given.items()),
                *([no] if refused else []),
            ],
            **({"admission": {"clusterQueue": queue, "podSetAssignments": [usage]}} if reserved else {}),
        },
    }
    return msgspec.convert(found, Workload)


def admitted(name: str = BASE, count: int = 1, **more: Any) -> Workload:
    """A Workload that is admitted, `true` beside that."""
    true = {"QuotaReserved": "QuotaReserved", "Admitted": "Admitted", **more.pop("true", {})}
    return workload(name, count, true=true, **more)


def condition(type_: str, reason: str, when: datetime) -> Manifest:
    """A condition that is true."""
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": f"{reason} it is",
        "lastTransitionTime": at(when),
    }


def cluster_queue(
    name: str, quota: str, cohort: str = "", *, resource: str = "cpu", **limits: str
) -> ClusterQueue:
    """A queue with one flavour of cores, or of another resource."""
    return flavored(name, {"f": quota}, cohort, resource=resource, **limits)


def flavored(
    name: str, quotas: Mapping[str, str], cohort: str = "", *, resource: str = "cpu", **limits: str
) -> ClusterQueue:
    """A queue with flavours in the order of preference, and the quota of each."""
    flavors = [
        {"name": flavor, "resources": [{"name": resource, "nominalQuota": quota, **limits}]}
        for flavor, quota in quotas.items()
    ]
    group = {"coveredResources": [resource], "flavors": flavors}
    found = {"metadata": {"name": name}, "spec": {"cohortName": cohort, "resourceGroups": [group]}}
    return msgspec.convert(found, ClusterQueue)
