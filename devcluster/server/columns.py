"""What `kubectl get` shows of the built-in kinds: a table of columns per kind.

The clock is part of a cell ("AGE"), so a column reads `(object, now)` through `Cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from elasticjob.devcluster.server.jsonpath import compile_path
from elasticjob.devcluster.server.registry import Column
from elasticjob.devcluster.server.store import Manifest

NONE = "<none>"


class Age(str):
    """A time that is shown as what has passed since. Resolved when the table is made."""


def age(path: str = ".metadata.creationTimestamp") -> Callable[[Manifest], Any]:
    find = compile_path(path)
    return lambda item: Age(next(iter(find(item)), "") or "")


def text(path: str, empty: str = NONE) -> Callable[[Manifest], Any]:
    """The value at a JSONPath as text."""
    find = compile_path(path)

    def read(item: Manifest) -> str:
        found = [value for value in find(item) if value is not None and value != ""]
        return ",".join(str(value) for value in found) if found else empty

    return read


def count(path: str) -> Callable[[Manifest], Any]:
    """How many members the object or list at a JSONPath has."""
    find = compile_path(path)
    return lambda item: sum(len(value) for value in find(item) if isinstance(value, dict | list))


def number(path: str) -> Callable[[Manifest], Any]:
    find = compile_path(path)
    return lambda item: next((value for value in find(item) if value is not None), 0)


def human(since: str, now: datetime) -> str:
    """`2026-01-01T00:00:00Z` → "5m3s", as kubectl writes durations."""
    if not since:
        return "<unknown>"
    seconds = int((now - datetime.fromisoformat(since).astimezone(UTC)).total_seconds())
    return "<invalid>" if seconds < -1 else human_seconds(max(0, seconds))


def human_seconds(seconds: int) -> str:
    """The two leading units, and only one where the second would not matter."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _pair(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _pair(days // 365, "y", days % 365, "d")


def _pair(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def column(name: str, read: Callable[[Manifest], Any], wide: bool = False, type_: str = "string") -> Column:
    return Column(name, read, type_, "name" if name == "Name" else "", priority=int(wide))


NAME = column("Name", text(".metadata.name"))
AGE = column("Age", age())


# Pods


def _statuses(pod: Manifest, which: str = "containerStatuses") -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get(which) or []


def _pod_ready(pod: Manifest) -> str:
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def pod_status(pod: Manifest) -> str:
    """One word for the state of a pod: the reason that matters most to a reader."""
    status = pod.get("status") or {}
    shown = status.get("reason") or status.get("phase") or "Unknown"
    starting = _initializing(pod)
    if starting:
        shown = starting
    else:
        for container in reversed(_statuses(pod)):
            shown = _container_reason(container.get("state") or {}) or shown
        running = any(each.get("ready") and "running" in (each.get("state") or {}) for each in _statuses(pod))
        if shown == "Completed" and running:
            shown = "Running"
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating" if status.get("phase") not in ("Failed", "Succeeded") else shown
    return shown


def _container_reason(state: Mapping[str, Any]) -> str:
    if waiting := (state.get("waiting") or {}).get("reason"):
        return str(waiting)
    ended = state.get("terminated")
    if ended is None:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"


def _initializing(pod: Manifest) -> str:
    total = len(pod["spec"].get("initContainers") or ())
    for index, container in enumerate(_statuses(pod, "initContainerStatuses")):
        state = container.get("state") or {}
        ended = state.get("terminated")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        reason = _container_reason(state)
        if reason and reason != "PodInitializing":
            return f"Init:{reason}"
        return f"Init:{index}/{total}"
    return ""


def _pod_restarts(pod: Manifest) -> str:
    statuses = _statuses(pod)
    restarts = sum(status.get("restartCount", 0) for status in statuses)
    ends = [
        ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for status in statuses
    ]
    last = max((end for end in ends if end), default="")
    return Restarts(f"{restarts}|{last}") if restarts and last else str(restarts)


class Restarts(str):
    """`count|time of the last one`, shown as "3 (5m ago)"."""


# Nodes and services


def _node_status(node: Manifest) -> str:
    conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or ()}
    shown = {"True": "Ready", "False": "NotReady"}.get(
        conditions.get("Ready", ""), "NotReady" if conditions else "Unknown"
    )
    return shown + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _node_roles(node: Manifest) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE


def _ports(service: Manifest) -> str:
    def one(port: Mapping[str, Any]) -> str:
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port['port']}{outside}/{port.get('protocol', 'TCP')}"

    return ",".join(one(port) for port in service["spec"].get("ports") or ()) or NONE


def _pairs(path: str) -> Callable[[Manifest], Any]:
    find = compile_path(path)

    def read(item: Manifest) -> str:
        found = next(iter(find(item)), None) or {}
        return ",".join(f"{key}={value}" for key, value in sorted(found.items())) or NONE

    return read


def _subjects(kind: str) -> Callable[[Manifest], Any]:
    def read(binding: Manifest) -> str:
        found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        return ", ".join("/".join(filter(None, (each.get("namespace"), each["name"]))) for each in found)

    return read


def _event_object(event: Manifest) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _last_seen(event: Manifest) -> Age:
    series = (event.get("series") or {}).get("lastObservedTime")
    return Age(
        series
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )


def _first_seen(event: Manifest) -> Age:
    return Age(
        event.get("firstTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    )


def _event_source(event: Manifest) -> str:
    source = event.get("source") or {}
    parts = (source.get("component") or event.get("reportingComponent") or "", source.get("host") or "")
    return ", ".join(part for part in parts if part)


def _endpoints(endpoints: Manifest) -> str:
    found = [
        f"{address['ip']}:{port['port']}"
        for subset in endpoints.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return ",".join(found[:3]) + more if found else NONE


def _ratio(numerator: str, denominator: str) -> Callable[[Manifest], Any]:
    over, under = number(numerator), number(denominator)
    return lambda item: f"{over(item)}/{under(item)}"


def _claim_size(claim: Manifest) -> str:
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", ""))


_ROLE = (NAME, column("Created At", text(".metadata.creationTimestamp")))
_BINDING = (
    NAME,
    column("Role", lambda item: f"{item['roleRef']['kind']}/{item['roleRef']['name']}"),
    AGE,
    column("Users", _subjects("User"), wide=True),
    column("Groups", _subjects("Group"), wide=True),
    column("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
_CONTAINERS = (
    column("Containers", text(".spec.template.spec.containers[*].name"), wide=True),
    column("Images", text(".spec.template.spec.containers[*].image"), wide=True),
)
_SELECTOR = column("Selector", _pairs(".spec.selector.matchLabels"), wide=True)

BUILTIN_COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "Pod"): (
        NAME,
        column("Ready", _pod_ready),
        column("Status", pod_status),
        column("Restarts", _pod_restarts),
        AGE,
        column("IP", text(".status.podIP"), wide=True),
        column("Node", text(".spec.nodeName"), wide=True),
        column("Nominated Node", text(".status.nominatedNodeName"), wide=True),
        column("Readiness Gates", lambda _: NONE, wide=True),
    ),
    ("", "Service"): (
        NAME,
        column("Type", text(".spec.type")),
        column("Cluster-IP", text(".spec.clusterIP")),
        column("External-IP", lambda _: NONE),
        column("Port(s)", _ports),
        AGE,
        column("Selector", _pairs(".spec.selector"), wide=True),
    ),
    ("", "Node"): (
        NAME,
        column("Status", _node_status),
        column("Roles", _node_roles),
        AGE,
        column("Version", text(".status.nodeInfo.kubeletVersion", "")),
        column("Internal-IP", text('.status.addresses[?(@.type=="InternalIP")].address'), wide=True),
        column("External-IP", text('.status.addresses[?(@.type=="ExternalIP")].address'), wide=True),
        column("OS-Image", text(".status.nodeInfo.osImage", "<unknown>"), wide=True),
        column("Kernel-Version", text(".status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        column("Container-Runtime", text(".status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True),
    ),
    ("", "Event"): (
        column("Last Seen", _last_seen),
        column("Type", text(".type", "")),
        column("Reason", text(".reason", "")),
        column("Object", _event_object),
        column("Subobject", text(".involvedObject.fieldPath", ""), wide=True),
        column("Source", _event_source, wide=True),
        column("Message", text(".message", "")),
        column("First Seen", _first_seen, wide=True),
        column("Count", number(".count"), wide=True),
        column("Name", text(".metadata.name"), wide=True),
    ),
    ("", "Namespace"): (NAME, column("Status", text(".status.phase", "")), AGE),
    ("", "ConfigMap"): (
        NAME,
        column("Data", lambda item: len(item.get("data") or ()) + len(item.get("binaryData") or ())),
        AGE,
    ),
    ("", "Secret"): (NAME, column("Type", text(".type", "")), column("Data", count(".data")), AGE),
    ("", "ServiceAccount"): (NAME, column("Secrets", count(".secrets")), AGE),
    ("", "Endpoints"): (NAME, column("Endpoints", _endpoints), AGE),
    ("", "PersistentVolumeClaim"): (
        NAME,
        column("Status", text(".status.phase", "")),
        column("Volume", text(".spec.volumeName", "")),
        column("Capacity", _claim_size),
        column("Access Modes", text(".spec.accessModes[*]", "")),
        column("StorageClass", text(".spec.storageClassName", "")),
        AGE,
        column("VolumeMode", text(".spec.volumeMode", "<unset>"), wide=True),
    ),
    ("apps", "Deployment"): (
        NAME,
        column("Ready", _ratio(".status.readyReplicas", ".spec.replicas")),
        column("Up-to-date", number(".status.updatedReplicas")),
        column("Available", number(".status.availableReplicas")),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    ("apps", "ReplicaSet"): (
        NAME,
        column("Desired", number(".spec.replicas")),
        column("Current", number(".status.replicas")),
        column("Ready", number(".status.readyReplicas")),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    ("apps", "StatefulSet"): (
        NAME,
        column("Ready", _ratio(".status.readyReplicas", ".spec.replicas")),
        AGE,
        *_CONTAINERS,
    ),
    ("apps", "DaemonSet"): (
        NAME,
        column("Desired", number(".status.desiredNumberScheduled")),
        column("Current", number(".status.currentNumberScheduled")),
        column("Ready", number(".status.numberReady")),
        AGE,
        *_CONTAINERS,
    ),
    ("batch", "Job"): (
        NAME,
        column("Completions", _ratio(".status.succeeded", ".spec.completions")),
        AGE,
        *_CONTAINERS,
    ),
    ("coordination.k8s.io", "Lease"): (NAME, column("Holder", text(".spec.holderIdentity", "")), AGE),
    ("discovery.k8s.io", "EndpointSlice"): (
        NAME,
        column("AddressType", text(".addressType", "")),
        column("Ports", text(".ports[*].port", "<unset>")),
        column("Endpoints", text(".endpoints[*].addresses[*]", "<unset>")),
        AGE,
    ),
    ("networking.k8s.io", "NetworkPolicy"): (
        NAME,
        column("Pod-Selector", _pairs(".spec.podSelector.matchLabels")),
        AGE,
    ),
    ("policy", "PodDisruptionBudget"): (
        NAME,
        column("Min Available", text(".spec.minAvailable", "N/A")),
        column("Max Unavailable", text(".spec.maxUnavailable", "N/A")),
        column("Allowed Disruptions", number(".status.disruptionsAllowed")),
        AGE,
    ),
    ("rbac.authorization.k8s.io", "Role"): _ROLE,
    ("rbac.authorization.k8s.io", "ClusterRole"): _ROLE,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("scheduling.k8s.io", "PriorityClass"): (
        NAME,
        column("Value", number(".value")),
        column("Global-Default", lambda item: bool(item.get("globalDefault"))),
        AGE,
        column("PreemptionPolicy", text(".preemptionPolicy", "PreemptLowerPriority")),
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): (
        NAME,
        column("Webhooks", count(".webhooks")),
        AGE,
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): (
        NAME,
        column("Webhooks", count(".webhooks")),
        AGE,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _ROLE,
}
BUILTIN_COLUMNS["events.k8s.io", "Event"] = BUILTIN_COLUMNS["", "Event"]
