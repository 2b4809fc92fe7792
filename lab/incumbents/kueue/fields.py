"""Every field of Kueue's kinds, and each label and annotation of its docs: a story, or why it has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from lab.clusters import binaries
from lab.clusters.plane.guest import manifests
from lab.clusters.plane.kueue import SET

SHOWN: Final = "compared in all stories"
INSIDE: Final = "Kueue's own notes, which no integration of a job reads or writes"
MULTIKUEUE: Final = "tests/controllers/kueue/test_multikueue.py, with two control planes"
PROVISIONING: Final = (
    "read by Kueue's controller of ProvisioningRequests; for jobs it is a check like any other"
)
ALPHA: Final = "behind a feature gate that is off by default"
ALIKE: Final = "a detail of a field that has a story"

PLACES: Final[Mapping[str, str]] = {
    "AdmissionCheck spec.controllerName": "an admission check: pending",
    "AdmissionCheck spec.parameters*": PROVISIONING,
    "AdmissionCheck status.*": "an admission check that is not there",
    "ClusterQueue spec.admissionChecksStrategy.admissionChecks[[]].name": "an admission check: pending",
    "ClusterQueue spec.admissionChecksStrategy.admissionChecks[[]].onFlavors*": "an admission check of one",
    "ClusterQueue spec.admissionScope.*": "admissionScope:",
    "ClusterQueue spec.cohortName": "a queue joins a cohort",
    "ClusterQueue spec.concurrentAdmissionPolicy.*": ALPHA,
    "ClusterQueue spec.fairSharing.weight": "fairSharing: by weight",
    "ClusterQueue spec.flavorFungibility.preference": ALIKE,
    "ClusterQueue spec.flavorFungibility.whenCanBorrow": "whenCanBorrow:",
    "ClusterQueue spec.flavorFungibility.whenCanPreempt": "whenCanPreempt:",
    "ClusterQueue spec.namespaceSelector.*": "namespaceSelector:",
    "ClusterQueue spec.preemption.borrowWithinCohort.*": "borrowWithinCohort:",
    "ClusterQueue spec.preemption.reclaimWithinCohort": "reclaimWithinCohort Any",
    "ClusterQueue spec.preemption.withinClusterQueue": "withinClusterQueue LowerPriority",
    "ClusterQueue spec.queueingStrategy": "StrictFIFO:",
    "ClusterQueue spec.resourceGroups[[]].coveredResources*": "two resource groups",
    "ClusterQueue spec.resourceGroups[[]].flavors[[]].name": "two flavors",
    "ClusterQueue spec.resourceGroups[[]].flavors[[]].resources[[]].borrowingLimit": "borrowing, up to",
    "ClusterQueue spec.resourceGroups[[]].flavors[[]].resources[[]].lendingLimit": "lending, up to",
    "ClusterQueue spec.resourceGroups[[]].flavors[[]].resources[[]].name": "two resource groups",
    "ClusterQueue spec.resourceGroups[[]].flavors[[]].resources[[]].nominalQuota": "nominal quota",
    "ClusterQueue spec.stopPolicy": "a ClusterQueue is held",
    "ClusterQueue status.fairSharing.*": INSIDE,
    "ClusterQueue status.*": SHOWN,
    "Cohort spec.fairSharing.weight": "fairSharing: by weight",
    "Cohort spec.parentName": "a cohort with quota of its own",
    "Cohort spec.resourceGroups*": "a cohort with quota of its own",
    "Cohort status.*": INSIDE,
    "LocalQueue spec.clusterQueue": "a LocalQueue is deleted",
    "LocalQueue spec.fairSharing.weight": "admissionScope:",
    "LocalQueue spec.stopPolicy": "a LocalQueue is held",
    "LocalQueue status.fairSharing.*": INSIDE,
    "LocalQueue status.*": SHOWN,
    "MultiKueueCluster *": MULTIKUEUE,
    "MultiKueueConfig *": MULTIKUEUE,
    "ProvisioningRequestConfig *": PROVISIONING,
    "ResourceFlavor spec.nodeLabels": "two flavors",
    "ResourceFlavor spec.nodeTaints[[]].*": "a pod's own selector",
    "ResourceFlavor spec.tolerations[[]].*": "two flavors",
    "ResourceFlavor spec.topologyName": "a topology: required",
    "Topology spec.levels[[]].nodeLabel": "a topology: required",
    "WorkloadPriorityClass description": INSIDE,
    "WorkloadPriorityClass value": "the value of a class changes",
    "Workload spec.active": "spec.active false",
    "Workload spec.maximumExecutionTimeSeconds": "max-exec-time-seconds",
    "Workload spec.podSets[[]].count": SHOWN,
    "Workload spec.podSets[[]].minCount": "partial admission beside",
    "Workload spec.podSets[[]].name": SHOWN,
    "Workload spec.podSets[[]].template": "a pod's own selector",
    "Workload spec.podSets[[]].topologyRequest.preferred": "a topology: preferred",
    "Workload spec.podSets[[]].topologyRequest.required": "a topology: required",
    "Workload spec.podSets[[]].topologyRequest.unconstrained": "a topology: preferred",
    "Workload spec.podSets[[]].topologyRequest.podSetSlice*": "a topology: slices of two",
    "Workload spec.podSets[[]].topologyRequest.podsetSlice*": ALIKE,
    "Workload spec.podSets[[]].topologyRequest.podIndexLabel": "a topology: required",
    "Workload spec.podSets[[]].topologyRequest.podSetGroupName": "of a leader and its workers, such as "
    "LeaderWorkerSet's; a Job has one pod set",
    "Workload spec.podSets[[]].topologyRequest.subGroup*": "of JobSets, which have several jobs in a pod set",
    "Workload spec.preemptionGates*": ALPHA,
    "Workload spec.priority": SHOWN,
    "Workload spec.priorityClassRef.*": "the priority class changes",
    "Workload spec.queueName": "the label: another queue",
    "Workload status.accumulatedPastExecutionTimeSeconds": "max-exec-time-seconds",
    "Workload status.admission.clusterQueue": SHOWN,
    "Workload status.admission.podSetAssignments[[]].*": SHOWN,
    "Workload status.admissionChecks[[]].*": "an admission check: pending",
    "Workload status.clusterName": MULTIKUEUE,
    "Workload status.conditions*": SHOWN,
    "Workload status.nominatedClusterNames*": MULTIKUEUE,
    "Workload status.preemptionGates*": ALPHA,
    "Workload status.reclaimablePods[[]].*": "a job ends, and its quota is free",
    "Workload status.requeueState.*": "waitForPodsReady: pods that never run",
    "Workload status.resourceRequests*": INSIDE,
    "Workload status.schedulingStats*": SHOWN,
    "Workload status.unhealthyNodes*": "a machine of a topology goes",
}
"""By the path of a field in its kind, a pattern: the first that fits counts."""

MARKS: Final[Mapping[str, str]] = {
    "queue-name": "the label: another queue",
    "priority-class": "the priority class changes",
    "max-exec-time-seconds": "max-exec-time-seconds",
    "admission-gated-by": "admission-gated-by",
    "job-min-parallelism": "partial admission beside",
    "job-completions-equal-parallelism": "of Indexed Jobs: ours have no number of completions",
    "elastic-job": "a size that changes",
    "podset-required-topology": "a topology: required",
    "podset-preferred-topology": "a topology: preferred",
    "podset-unconstrained-topology": "a topology: preferred",
    "podset-slice-required-topology": "a topology: slices of two",
    "podset-slice-size": "a topology: slices of two",
    "podset-slice-required-topology-constraints": ALIKE,
    "podset-group-name": "of a leader and its workers; a Job has one pod set",
    "prebuilt-workload-name": MULTIKUEUE,
    "multikueue-origin": MULTIKUEUE,
    "pod-group-*": "of bare pods",
    "retriable-in-group": "of bare pods",
    "safe-to-forcefully-delete": ALPHA,
    "priority-boost": ALPHA,
    "concurrent-admission-parent": ALPHA,
    "workload-allowed-resource-flavors": ALPHA,
}
"""Labels and annotations that a user sets, without Kueue's domain."""


def fields(kind: str, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of all fields below one that have none below them; a pod template counts as one."""
    if schema.get("type") == "array":
        yield from fields(kind, schema["items"], f"{path}[]")
    elif (below := schema.get("properties")) and not path.endswith("template"):
        for name, each in below.items():
            yield from fields(kind, each, f"{path}.{name}")
    else:
        yield f"{kind} {path}"


def every_field() -> Iterator[str]:
    """Yield the fields of Kueue's definitions. Raises `binaries.Missing` where these are not built."""
    for each in manifests(binaries.require(SET)["kueue-definitions"]):
        if each["kind"] != "CustomResourceDefinition":
            continue
        stored = next(version for version in each["spec"]["versions"] if version["storage"])
        for name, schema in stored["schema"]["openAPIV3Schema"]["properties"].items():
            if name not in ("apiVersion", "kind", "metadata"):
                yield from fields(each["spec"]["names"]["kind"], schema, name)


def gaps(stories: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """Yield fields without a place, places without a field, and stories that there are not."""
    reasons = {SHOWN, INSIDE, MULTIKUEUE, PROVISIONING, ALPHA, ALIKE}
    used = {next((each for each in PLACES if fnmatchcase(field, each)), field): field for field in found}
    yield from (
        f"{field}: neither a story nor a reason"
        for pattern, field in used.items()
        if pattern == field and pattern not in PLACES
    )
    yield from (f"{pattern}: Kueue has no such field" for pattern in PLACES.keys() - used.keys())
    for pattern, place in {**PLACES, **MARKS}.items():
        told = place in reasons or place.startswith("of ")
        if not told and not any(place in story for story in stories):
            yield f"{pattern}: no story has {place!r} in its name"
