"""Members that an object of a built-in kind has even when empty: Go struct fields without omitempty.

A manager that fills one owns its content, never the member itself.
"""

from __future__ import annotations

from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.write.fields import Path

_EVERY = ("spec", "status")
_TEMPLATE = ("spec.template", "spec.template.metadata", "spec.template.spec", "spec.template.spec.containers")
_EVENT = (
    "eventTime",
    *("firstTimestamp", "lastTimestamp", "source"),
    *("deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource"),
    *("reportingComponent", "reportingInstance"),
)
_JOB = tuple(f"spec.jobTemplate.{each}" for each in ("metadata", "spec", *_TEMPLATE))
_OF_KIND: dict[str, tuple[str, ...]] = {
    "CronJob": ("spec.jobTemplate", *_JOB),
    "CustomResourceDefinition": ("spec.names", "status.acceptedNames"),
    "DaemonSet": (*_TEMPLATE, "spec.updateStrategy"),
    "Deployment": (*_TEMPLATE, "spec.strategy"),
    "Event": _EVENT,
    "HorizontalPodAutoscaler": ("spec.scaleTargetRef",),
    "Ingress": ("status.loadBalancer",),
    "Job": _TEMPLATE,
    "NetworkPolicy": ("spec.podSelector",),
    "Node": ("status.daemonEndpoints", "status.daemonEndpoints.kubeletEndpoint", "status.nodeInfo"),
    "PersistentVolumeClaim": ("spec.resources",),
    "Pod": ("spec.containers",),
    "ReplicaSet": _TEMPLATE,
    "Service": ("status.loadBalancer",),
    "StatefulSet": (*_TEMPLATE, "spec.updateStrategy"),
    "TokenRequest": ("spec.boundObjectRef",),
}


def solid_paths(resource: Resource) -> frozenset[Path]:
    """The paths of these members; empty for custom resources, which have no Go type."""
    if resource.custom:
        return frozenset()
    return _PATHS.get(resource.kind, _PLAIN)


def _paths(*members: str) -> frozenset[Path]:
    return frozenset(tuple(f"f:{part}" for part in each.split(".")) for each in members)


_PLAIN = _paths(*_EVERY)
_PATHS = {kind: _paths(*_EVERY, *members) for kind, members in _OF_KIND.items()}
