"""How pods find machines: what they ask for, which machines take them. As the scheduler sees it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from elasticjob.api.resources import Resources, pod_requests
from elasticjob.api.v1alpha1.elasticjob import ReplicaSpec
from elasticjob.kube.objects import views
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Node, Pod

CLOSED: Final = ("NoSchedule", "NoExecute")
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint of a Node whose machine is known to be down."""


def takes(node: Node, pod: Manifest) -> bool:
    """Whether a machine's taints and labels let a pod in."""
    tolerations = pod.get("tolerations") or []
    closed = (taint for taint in node.spec.taints if taint.get("effect") in CLOSED)
    if not all(any(_tolerates(each, taint) for each in tolerations) for taint in closed):
        return False
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in (pod.get("nodeSelector") or {}).items()):
        return False
    affinity = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms") or []
    return not terms or any(_matches(labels, term.get("matchExpressions") or []) for term in terms)


def is_silent(node: Node) -> bool:
    """Whether the kubelet of a Node does not report, or an administrator says that it is out of service."""
    ready = (condition.status for condition in node.status.conditions if condition.type == "Ready")
    taints = (taint.get("key") for taint in node.spec.taints)
    return next(ready, "True") != "True" or OUT_OF_SERVICE in taints


def requests(pod: Pod) -> Resources:
    """Return what a pod asks for, by the scheduler's rule."""
    spec = {"containers": _raw(pod.spec.containers), "initContainers": _raw(pod.spec.init_containers)}
    return pod_requests(spec)


def with_resource(replicas: ReplicaSpec, resource: Mapping[str, str]) -> Manifest:
    """Return the pod spec of a role's template, whose main container gets `resource`."""
    main = replicas.main_container
    given: list[Manifest] = replicas.pod.get("containers") or []
    containers = [{**c, "resources": resources_of(c, resource)} if c is main else c for c in given]
    return {**replicas.pod, "containers": containers}


def resources_of(container: Manifest, resource: Mapping[str, str]) -> Manifest:
    """Return a container's resources with `resource` as request and limit.

    Processor time gets a limit only where the template had one: limits throttle, requests are for placing.
    """
    given: Manifest = container.get("resources") or {}
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    capped = {name: amount for name, amount in resource.items() if name != "cpu" or "cpu" in limits}
    merged = {"requests": {**requests, **resource}, "limits": {**limits, **capped}}
    return {**given, **{key: value for key, value in merged.items() if value}}


def _raw(containers: Iterable[views.Container]) -> list[Manifest]:
    return [
        {
            "resources": {"requests": each.resources.requests, "limits": each.resources.limits},
            "restartPolicy": each.restart_policy,
        }
        for each in containers
    ]


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _matches(labels: Mapping[str, str], expressions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether labels meet all expressions; comparisons of numbers (Gt, Lt) are taken as met."""
    for each in expressions:
        value, values = labels.get(each.get("key") or ""), each.get("values") or []
        match each.get("operator"):
            case "In" if value not in values:
                return False
            case "NotIn" if value in values:
                return False
            case "Exists" if value is None:
                return False
            case "DoesNotExist" if value is not None:
                return False
    return True
