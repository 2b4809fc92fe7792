"""The built-in resources: one row each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from elasticjob.devcluster.server.kinds.events import EVENTS_V1
from elasticjob.devcluster.server.model.registry import Resource, Scale
from elasticjob.devcluster.server.model.schemas import Schema, builtin_definitions
from elasticjob.devcluster.server.read.columns import BUILTIN_COLUMNS


class Row(NamedTuple):
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    fields: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    scale: Scale | None = None


_CORE, _APPS, _RBAC = "", "apps", "rbac.authorization.k8s.io"
_ADMISSION, _CRD = "admissionregistration.k8s.io", "apiextensions.k8s.io"
_ALL = ("all",)
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS = (
    *(
        f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_REPLICAS = Scale(".spec.replicas", ".status.replicas", ".spec.selector")

TABLE = (
    Row(_CORE, "v1", "ConfigMap", "configmaps", short=("cm",)),
    Row(_CORE, "v1", "Endpoints", "endpoints", short=("ep",)),
    Row(_CORE, "v1", "Event", "events", short=("ev",), fields=_EVENT_FIELDS),
    Row(_CORE, "v1", "LimitRange", "limitranges", short=("limits",)),
    Row(_CORE, "v1", "Namespace", "namespaces", False, ("ns",), status=True, fields=("status.phase",)),
    Row(_CORE, "v1", "Node", "nodes", False, ("no",), status=True, fields=("spec.unschedulable",)),
    Row(_CORE, "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), status=True),
    Row(_CORE, "v1", "PersistentVolume", "persistentvolumes", False, ("pv",), status=True),
    Row(
        _CORE,
        "v1",
        "Pod",
        "pods",
        short=("po",),
        categories=_ALL,
        status=True,
        fields=_POD_FIELDS,
        subresources=("binding", "eviction", "log", "resize"),
    ),
    Row(_CORE, "v1", "PodTemplate", "podtemplates"),
    Row(_CORE, "v1", "ResourceQuota", "resourcequotas", short=("quota",), status=True),
    Row(_CORE, "v1", "Secret", "secrets", fields=("type",)),
    Row(_CORE, "v1", "ServiceAccount", "serviceaccounts", short=("sa",), subresources=("token",)),
    Row(
        _CORE,
        "v1",
        "Service",
        "services",
        short=("svc",),
        categories=_ALL,
        status=True,
        fields=("spec.clusterIP", "spec.type"),
    ),
    Row(_APPS, "v1", "DaemonSet", "daemonsets", short=("ds",), categories=_ALL, status=True),
    Row(
        _APPS,
        "v1",
        "Deployment",
        "deployments",
        short=("deploy",),
        categories=_ALL,
        status=True,
        scale=_REPLICAS,
    ),
    Row(
        _APPS, "v1", "ReplicaSet", "replicasets", short=("rs",), categories=_ALL, status=True, scale=_REPLICAS
    ),
    Row(
        _APPS,
        "v1",
        "StatefulSet",
        "statefulsets",
        short=("sts",),
        categories=_ALL,
        status=True,
        scale=_REPLICAS,
    ),
    Row("batch", "v1", "CronJob", "cronjobs", short=("cj",), categories=_ALL, status=True),
    Row("batch", "v1", "Job", "jobs", categories=_ALL, status=True, fields=("status.successful",)),
    Row("coordination.k8s.io", "v1", "Lease", "leases"),
    Row("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    Row(
        "events.k8s.io",
        "v1",
        "Event",
        "events",
        short=("ev",),
        fields=(
            *(field.replace("involvedObject", "regarding") for field in _EVENT_FIELDS),
            "reportingController",
        ),
    ),
    Row("networking.k8s.io", "v1", "Ingress", "ingresses", short=("ing",), status=True),
    Row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short=("netpol",)),
    Row("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short=("pdb",), status=True),
    Row(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    Row(_RBAC, "v1", "ClusterRole", "clusterroles", False),
    Row(_RBAC, "v1", "RoleBinding", "rolebindings"),
    Row(_RBAC, "v1", "Role", "roles"),
    Row("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",)),
    Row("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, ("sc",)),
    Row(
        _ADMISSION,
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        False,
        categories=("api-extensions",),
    ),
    Row(
        _ADMISSION,
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        False,
        categories=("api-extensions",),
    ),
    Row(
        _CRD,
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        ("crd", "crds"),
        ("api-extensions",),
        status=True,
    ),
)


def builtin_resources() -> Iterator[Resource]:
    """Every row whose type is in the published definitions."""
    schemas = {key: schema for schema in builtin_definitions().values() for key in _kinds(schema)}
    for row in TABLE:
        schema = schemas.get((row.group, row.version, row.kind))
        if schema is not None:
            yield _resource(row, schema)


def _kinds(schema: Schema) -> Iterator[tuple[str, str, str]]:
    found: list[dict[str, Any]] = schema.get("x-kubernetes-group-version-kind") or []
    for each in found:
        yield each["group"], each["version"], each["kind"]


def _resource(row: Row, schema: Schema) -> Resource:
    shared = row.group == "events.k8s.io"
    return Resource(
        row.group,
        row.version,
        row.kind,
        row.plural,
        schema,
        row.namespaced,
        row.kind.lower(),
        row.short,
        row.categories,
        row.status,
        row.scale,
        row.fields,
        BUILTIN_COLUMNS.get((row.group, row.kind), ()),
        conversion=EVENTS_V1 if shared else None,
        storage_group="" if shared else None,
        storage_version="v1",
        subresources=row.subresources,
    )
