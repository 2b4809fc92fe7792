"""Kueue's kinds as plain JSON, and the smallest objects of each: what a test or a benchmark sets up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
IN_USE: Final = f"{GROUP}/resource-in-use"
"""The finalizer of a Workload; whoever manages the job takes it off."""

RESOURCE_FLAVOR: Final = Kind(GROUP, VERSION, "ResourceFlavor", "resourceflavors", dict, namespaced=False)
CLUSTER_QUEUE: Final = Kind(GROUP, VERSION, "ClusterQueue", "clusterqueues", dict, namespaced=False)
COHORT: Final = Kind(GROUP, VERSION, "Cohort", "cohorts", dict, namespaced=False)
TOPOLOGY: Final = Kind(GROUP, VERSION, "Topology", "topologies", dict, namespaced=False)
LOCAL_QUEUE: Final = Kind(GROUP, VERSION, "LocalQueue", "localqueues", dict)
PRIORITY_CLASS: Final = Kind(
    GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", dict, namespaced=False
)
WORKLOAD: Final = Kind(GROUP, VERSION, "Workload", "workloads", dict)


def flavor(name: str = "default", labels: Mapping[str, str] | None = None, *, topology: str = "") -> Manifest:
    """A flavor, on the nodes with those labels, which have a topology."""
    spec: Manifest = {"nodeLabels": dict(labels)} if labels else {}
    return {"metadata": {"name": name}, "spec": spec | ({"topologyName": topology} if topology else {})}


def topology(name: str, *labels: str) -> Manifest:
    """Domains of machines, the largest first, each named by a label."""
    return {"metadata": {"name": name}, "spec": {"levels": [{"nodeLabel": label} for label in labels]}}


def cluster_queue(
    name: str, quota: Mapping[str, str], *, flavor: str = "default", cohort: str = "", **more: Any
) -> Manifest:
    """A queue of so much of each resource, in which a higher priority preempts; of a cohort, it reclaims."""
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    covered = {"coveredResources": [*quota], "flavors": [{"name": flavor, "resources": resources}]}
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [covered],
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        **({"cohortName": cohort} if cohort else {}),
        **more,
    }
    return {"metadata": {"name": name}, "spec": spec}


def cohort(name: str, parent: str) -> Manifest:
    """A cohort below another."""
    return {"metadata": {"name": name}, "spec": {"parentName": parent}}


def local_queue(name: str, namespace: str, cluster_queue: str) -> Manifest:
    """A door of the namespace to a cluster queue."""
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue}}


def priority(name: str, value: int) -> Manifest:
    """A priority class of Workloads."""
    return {"metadata": {"name": name}, "value": value}


def workload(
    name: str, namespace: str, queue: str, pods: int, requests: Mapping[str, str], **more: Any
) -> Manifest:
    """A Workload of nobody's, with one set of pods; `more` are fields of its spec."""
    container = {"name": "main", "image": "none", "resources": {"requests": dict(requests)}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    sets = [{"name": "worker", "count": pods, "template": template}]
    metadata = {"name": name, "namespace": namespace, "finalizers": [IN_USE]}
    return {"metadata": metadata, "spec": {"queueName": queue, "podSets": sets, **more}}


def conditions(found: Mapping[str, Any]) -> dict[str, str]:
    """The conditions that are true, with their reasons."""
    given = found.get("status", {}).get("conditions", ())
    return {each["type"]: each["reason"] for each in given if each["status"] == "True"}


@asynccontextmanager
async def set_up(
    client: Client, *objects: tuple[Kind[Manifest], Manifest], namespace: str
) -> AsyncIterator[None]:
    """Make objects of Kueue, LocalQueues in a namespace; delete them afterwards, the last one first."""
    for kind, manifest in objects:
        await client.create(kind, manifest)
    yield
    for kind, manifest in reversed(objects):
        await client.delete(kind, manifest["metadata"]["name"], namespace if kind is LOCAL_QUEUE else "")
