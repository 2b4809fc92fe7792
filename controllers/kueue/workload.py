"""Kueue's objects, as far as they are read; `kueue.x-k8s.io/v1beta2`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from elasticjob.kube.objects.conditions import find, is_true
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import Condition, Object, Quantity, View

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"

PREBUILT: Final = f"{GROUP}/prebuilt-workload-name"
JOB_UID: Final = f"{GROUP}/job-uid"
GATED_BY: Final = f"{GROUP}/admission-gated-by"
"""On jobs and Workloads: the gates that other controllers open before Kueue may admit."""
PROVISIONING: Final = "provreq.kueue.x-k8s.io/"
"""The start of annotations for ProvisioningRequests."""
IN_USE: Final = f"{GROUP}/resource-in-use"
MULTIKUEUE: Final = f"{GROUP}/multikueue"
TOPOLOGY: Final = {
    f"{GROUP}/podset-required-topology": "required",
    f"{GROUP}/podset-preferred-topology": "preferred",
}
SLICE_TOPOLOGY: Final = f"{GROUP}/podset-slice-required-topology"
SLICE_SIZE: Final = f"{GROUP}/podset-slice-size"
"""How many pods of a pod set must be in one domain of that level."""
UNCONSTRAINED: Final = f"{GROUP}/podset-unconstrained-topology"

REPLACES: Final = f"{GROUP}/workload-slice-replacement-for"
"""On a Workload: the one, as namespace/name, whose quota it takes over when it is admitted. Kueue asks for
the difference alone, in the same flavours, and finishes the other one."""
CHAIN: Final = f"{GROUP}/workload-slice-name"
"""On a Workload that replaces others: the first of them, which the pods of all of them name."""

GIVEN_BACK: Final = "elasticjob.dlrover/given-back"
"""On slices: for whom they are given back. Their quota is free once no pod uses it."""

NEEDED: Final = "elasticjob.dlrover/needed-for"
"""On slices: `the minimum`, where that was raised while the job ran. They are not for others to have."""

HELD: Final = "elasticjob.dlrover/grows-after"
"""On the base: when the job may grow again."""

TRIES: Final = "elasticjob.dlrover/tries-in-vain"
"""On the base: how often it grew, and the pods were not ready in time, since all were."""

ROOM_FOR: Final = "elasticjob.dlrover/room-made-for"
"""On the base: for which Workloads slices were given back, and when; no time where that was in vain."""

QUOTA_RESERVED, ADMITTED, EVICTED, FINISHED = "QuotaReserved", "Admitted", "Evicted", "Finished"
PODS_READY, REQUEUED = "PodsReady", "Requeued"
PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
PREEMPTED: Final = "Preempted"
REQUEUED_AT_ONCE: Final = frozenset({PREEMPTED, "NodeFailures"})
"""Reasons of an eviction after which a Workload is queued again without waiting."""


INDEXES: Final = frozenset({"podIndexLabel", "subGroupIndexLabel", "subGroupCount", "podSetGroupName"})
"""Fields of a topology request that do not ask for a topology."""


class PodSet(View, frozen=True):
    """Pods of one template."""

    name: str = "main"
    count: int = 1
    template: Manifest = {}
    topology_request: Manifest = {}

    @property
    def wants_topology(self) -> bool:
        """Whether Kueue is to choose machines: the index that each batch/v1 Job has does not say so."""
        return bool(self.topology_request.keys() - INDEXES)

    def manifest(self, count: int) -> Manifest:
        """Return it as it stands in a Workload, for so many pods."""
        asked = {"topologyRequest": self.topology_request} if self.topology_request else {}
        return {"name": self.name, "count": count, "template": self.template, **asked}


class Assignment(View, frozen=True):
    """What a pod set was given: a flavour for each resource, in all so much."""

    name: str = ""
    flavors: dict[str, str] = {}
    resource_usage: dict[str, Quantity] = {}
    count: int | None = None
    topology_assignment: Manifest | None = None


class Admission(View, frozen=True):
    """Where quota is reserved."""

    cluster_queue: str = ""
    pod_set_assignments: list[Assignment] = []


class PodSetUpdate(View, frozen=True):
    """What an admission check adds to the pods of a pod set."""

    name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Manifest] = []


class AdmissionCheck(View, frozen=True):
    """The state of one admission check: Pending, Ready, Retry or Rejected."""

    name: str = ""
    state: str = ""
    message: str = ""
    pod_set_updates: list[PodSetUpdate] = []


class Reclaimable(View, frozen=True):
    """Pods of a pod set that will not run again."""

    name: str = ""
    count: int = 0


class RequeueState(View, frozen=True):
    """When a Workload that was evicted is looked at again."""

    requeue_at: datetime | None = None


class ClassRef(View, frozen=True):
    """The class from which a Workload has its priority."""

    kind: str = ""
    name: str = ""


class WorkloadSpec(View, frozen=True):
    """What is asked for."""

    queue_name: str = ""
    priority_class_ref: ClassRef | None = None
    priority: int | None = None
    active: bool = True
    pod_sets: list[PodSet] = []


class WorkloadStatus(View, frozen=True):
    """Status of a Workload: its admission, conditions and reclaimable pods."""

    conditions: list[Condition] = []
    admission: Admission | None = None
    admission_checks: list[AdmissionCheck] = []
    reclaimable_pods: list[Reclaimable] = []
    requeue_state: RequeueState | None = None


class Workload(Object, frozen=True):
    """Pods for which quota is asked together."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type."""
        return find(self.status.conditions, type_)

    @property
    def has_quota(self) -> bool:
        """Whether it holds quota."""
        return is_true(self.status.conditions, QUOTA_RESERVED) and not self.is_finished

    @property
    def is_admitted(self) -> bool:
        """Whether its pods may run: it holds quota, all checks are met, and it is not to give that back."""
        return self.has_quota and is_true(self.status.conditions, ADMITTED) and not self.leaving

    @property
    def is_evicted(self) -> bool:
        """Whether Kueue takes its quota back."""
        return is_true(self.status.conditions, EVICTED)

    @property
    def leaving(self) -> bool:
        """Whether its pods are to leave: it was evicted, given back or deleted."""
        about = self.metadata
        gone = about.deletion_timestamp is not None or GIVEN_BACK in about.annotations
        return self.is_evicted or not self.spec.active or gone

    @property
    def returning(self) -> bool:
        """Whether it returns quota, or has just done so."""
        if self.is_finished:
            return IN_USE in self.metadata.finalizers
        return self.has_quota and (self.leaving or bool(self.status.reclaimable_pods))

    @property
    def is_finished(self) -> bool:
        """Whether it will hold no quota again."""
        return is_true(self.status.conditions, FINISHED)

    @property
    def pending(self) -> bool:
        """Whether it waits for quota."""
        about = self.metadata
        gone = about.deletion_timestamp is not None or GIVEN_BACK in about.annotations
        waits = self.spec.active and not gone  # Evicted stays True until it is admitted again
        return waits and not self.has_quota and not self.is_finished

    @property
    def chain(self) -> str:
        """The Workload that its pods name: the first of those that replaced each other."""
        return self.metadata.annotations.get(CHAIN) or self.metadata.name

    @property
    def replaces(self) -> str:
        """The Workload that it takes the place of when it is admitted, "" for none."""
        return self.metadata.annotations.get(REPLACES, "").rpartition("/")[2]

    def count(self, pod_set: str) -> int:
        """Return how many pods of a pod set it is for."""
        return sum(each.count for each in self.spec.pod_sets if each.name == pod_set)


class LocalQueueSpec(View, frozen=True):
    """Where a queue of a namespace leads."""

    cluster_queue: str = ""
    stop_policy: str = "None"


class LocalQueue(Object, frozen=True):
    """A queue of a namespace."""

    spec: LocalQueueSpec = LocalQueueSpec()


class ResourceQuota(View, frozen=True):
    """The quota of one resource of a flavour."""

    name: str = ""
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(View, frozen=True):
    """The quotas of a flavour."""

    name: str = ""
    resources: list[ResourceQuota] = []


class ResourceGroup(View, frozen=True):
    """Resources that are given together, of the first flavour that fits."""

    covered_resources: list[str] = []
    flavors: list[FlavorQuotas] = []


class ClusterQueueSpec(View, frozen=True):
    """Quotas, and the cohort that borrows and lends them."""

    cohort_name: str = ""
    resource_groups: list[ResourceGroup] = []
    stop_policy: str = "None"
    queueing_strategy: str = "BestEffortFIFO"


class ClusterQueue(Object, frozen=True):
    """A queue of the cluster, with quota."""

    spec: ClusterQueueSpec = ClusterQueueSpec()


class CohortSpec(View, frozen=True):
    """Quota beside that of its queues, and the cohort above it."""

    parent_name: str = ""
    resource_groups: list[ResourceGroup] = []


class Cohort(Object, frozen=True):
    """A cohort with quota of its own, or with a parent; any other is only named by its queues."""

    spec: CohortSpec = CohortSpec()


class ResourceFlavorSpec(View, frozen=True):
    """What pods of a flavour carry to land on its machines, and which of these let them in."""

    node_labels: dict[str, str] = {}
    node_taints: list[Manifest] = []
    topology_name: str = ""
    tolerations: list[Manifest] = []


class ResourceFlavor(Object, frozen=True):
    """A kind of machines."""

    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class PriorityClass(Object, frozen=True):
    """A PriorityClass of Kubernetes, or a WorkloadPriorityClass of Kueue."""

    value: int = 0


WORKLOAD: Final = Kind(GROUP, VERSION, "Workload", "workloads", Workload)
LOCAL_QUEUE: Final = Kind(GROUP, VERSION, "LocalQueue", "localqueues", LocalQueue)
CLUSTER_QUEUE: Final = Kind(GROUP, VERSION, "ClusterQueue", "clusterqueues", ClusterQueue, namespaced=False)
COHORT: Final = Kind(GROUP, VERSION, "Cohort", "cohorts", Cohort, namespaced=False)
FLAVOR: Final = Kind(GROUP, VERSION, "ResourceFlavor", "resourceflavors", ResourceFlavor, namespaced=False)
WORKLOAD_PRIORITY_CLASS: Final = Kind(
    GROUP, VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", PriorityClass, namespaced=False
)
PRIORITY_CLASS_KIND: Final = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", PriorityClass, namespaced=False
)
