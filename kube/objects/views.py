"""Narrow views of the Kubernetes types that a controller reads; other fields are not decoded.

Python names are snake_case, JSON names camelCase. Deep parts that few read are plain JSON (`Manifest`).
To write an object, build a Manifest: a view drops what it does not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

from elasticjob.kube.objects.kinds import Kind, Manifest

Quantity = str | int | float
"""As it stands in the manifest: `"500m"`, `"4Gi"`, `1`."""


class View(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all views: immutable, built by keyword, camelCase outside, defaults left out."""


class OwnerReference(View, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class Object(View, frozen=True):
    """The least that every object is."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class Condition(View, frozen=True):
    """One entry of `status.conditions`; `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: datetime | None = None


class EnvVar(View, frozen=True):
    name: str
    value: str = ""
    value_from: Manifest | None = None


class ContainerPort(View, frozen=True):
    container_port: int
    name: str = ""
    protocol: str = "TCP"
    host_port: int | None = None


class VolumeMount(View, frozen=True):
    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class Resources(View, frozen=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Container(View, frozen=True):
    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    working_dir: str = ""
    env: list[EnvVar] = []
    env_from: list[Manifest] = []
    ports: list[ContainerPort] = []
    resources: Resources = Resources()
    resize_policy: list[Manifest] = []
    restart_policy: str = ""
    volume_mounts: list[VolumeMount] = []
    readiness_probe: Manifest | None = None
    liveness_probe: Manifest | None = None
    startup_probe: Manifest | None = None
    lifecycle: Manifest | None = None
    security_context: Manifest | None = None
    image_pull_policy: str = ""
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"


class PodSpec(View, frozen=True):
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    volumes: list[Manifest] = []
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    hostname: str = ""
    subdomain: str = ""
    service_account_name: str = ""
    automount_service_account_token: bool | None = None
    node_selector: dict[str, str] = {}
    affinity: Manifest | None = None
    tolerations: list[Manifest] = []
    topology_spread_constraints: list[Manifest] = []
    scheduler_name: str = "default-scheduler"
    scheduling_gates: list[Manifest] = []
    priority: int | None = None
    priority_class_name: str = ""
    host_network: bool = False
    share_process_namespace: bool = False
    security_context: Manifest | None = None
    resources: Resources = Resources()


class ContainerRunning(View, frozen=True):
    started_at: datetime | None = None


class ContainerWaiting(View, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerTerminated(View, frozen=True):
    exit_code: int
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    container_id: str = field(default="", name="containerID")


class ContainerState(View, frozen=True):
    """At most one of the three is set; none means waiting."""

    waiting: ContainerWaiting | None = None
    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class DeviceHealth(View, frozen=True):
    """One device that a container has, and `Healthy`, `Unhealthy` or `Unknown`."""

    resource_id: str = field(default="", name="resourceID")
    health: str = ""


class AllocatedResource(View, frozen=True):
    """The devices of one kind, such as nvidia.com/gpu; claims are called claim:name/request."""

    name: str = ""
    resources: list[DeviceHealth] = []


class ContainerStatus(View, frozen=True):
    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    image: str = ""
    image_id: str = field(default="", name="imageID")
    container_id: str = field(default="", name="containerID")
    resources: Resources | None = None
    allocated_resources: dict[str, Quantity] = {}
    allocated_resources_status: list[AllocatedResource] = []


class PodCondition(View, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(View, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    host_ip: str = field(default="", name="hostIP")
    start_time: datetime | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    qos_class: str = ""
    resize: str = ""
    observed_generation: int = 0


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(View, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str | None = None
    node_port: int | None = None


class ServiceSpec(View, frozen=True):
    cluster_ip: str = field(default="", name="clusterIP")
    type: str = "ClusterIP"
    selector: dict[str, str] = {}
    ports: list[ServicePort] = []
    publish_not_ready_addresses: bool = False


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class Secret(Object, frozen=True):
    type: str = "Opaque"
    data: dict[str, bytes] = {}
    """Decoded from base64."""
    immutable: bool = False


class ConfigMap(Object, frozen=True):
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}
    immutable: bool = False


class NodeSpec(View, frozen=True):
    unschedulable: bool = False
    taints: list[Manifest] = []


class NodeStatus(View, frozen=True):
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: list[PodCondition] = []
    addresses: list[Manifest] = []


class Node(Object, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NamespaceStatus(View, frozen=True):
    phase: str = ""


class Namespace(Object, frozen=True):
    status: NamespaceStatus = NamespaceStatus()


class ServiceAccount(Object, frozen=True):
    automount_service_account_token: bool | None = None


class Role(Object, frozen=True):
    rules: list[Manifest] = []


class RoleBinding(Object, frozen=True):
    role_ref: Manifest = {}
    subjects: list[Manifest] = []


class PersistentVolumeClaim(Object, frozen=True):
    spec: Manifest = {}
    status: Manifest = {}


class NetworkPolicy(Object, frozen=True):
    spec: Manifest = {}


class PodDisruptionBudget(Object, frozen=True):
    spec: Manifest = {}


class LeaseSpec(View, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class Event(Object, frozen=True):
    """A core/v1 Event: what `kubectl describe` shows."""

    involved_object: ObjectReference = ObjectReference()
    type: str = "Normal"
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    action: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""

    @property
    def latest(self) -> datetime | None:
        """When it was seen last."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp


class CustomResourceDefinitionNames(View, frozen=True):
    kind: str = ""
    plural: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] = []
    categories: list[str] = []


class CustomResourceDefinitionSpec(View, frozen=True):
    group: str = ""
    names: CustomResourceDefinitionNames = CustomResourceDefinitionNames()
    scope: str = ""
    versions: list[Manifest] = []


class CustomResourceDefinitionStatus(View, frozen=True):
    conditions: list[PodCondition] = []


class CustomResourceDefinition(Object, frozen=True):
    spec: CustomResourceDefinitionSpec = CustomResourceDefinitionSpec()
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()


class WebhookConfiguration(Object, frozen=True):
    webhooks: list[Manifest] = []


EventType = Literal["Normal", "Warning"]

POD = Kind("", "v1", "Pod", "pods", Pod)
SERVICE = Kind("", "v1", "Service", "services", Service)
SECRET = Kind("", "v1", "Secret", "secrets", Secret)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)
NODE = Kind("", "v1", "Node", "nodes", Node, namespaced=False)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Namespace, namespaced=False)
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", ServiceAccount)
PERSISTENT_VOLUME_CLAIM = Kind(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", PersistentVolumeClaim
)
EVENT = Kind("", "v1", "Event", "events", Event)
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles", Role)
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", RoleBinding)
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", Role, namespaced=False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", Lease)
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", NetworkPolicy)
POD_DISRUPTION_BUDGET = Kind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", PodDisruptionBudget
)
CRD = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    CustomResourceDefinition,
    namespaced=False,
)
MUTATING_WEBHOOKS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    WebhookConfiguration,
    namespaced=False,
)
VALIDATING_WEBHOOKS = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    WebhookConfiguration,
    namespaced=False,
)

BUILT_IN: tuple[Kind[Any], ...] = (
    POD,
    SERVICE,
    SECRET,
    CONFIG_MAP,
    NODE,
    NAMESPACE,
    SERVICE_ACCOUNT,
    PERSISTENT_VOLUME_CLAIM,
    EVENT,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    LEASE,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    CRD,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
