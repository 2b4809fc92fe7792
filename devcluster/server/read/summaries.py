"""Cells computed from a whole object: the state of a pod, the roles of a node, the object of an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.read.cells import NONE, Age, Restarts


def _statuses(pod: Manifest, which: str = "containerStatuses") -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get(which) or []


def pod_ready(pod: Manifest) -> str:
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


def pod_restarts(pod: Manifest) -> str:
    statuses = _statuses(pod)
    restarts = sum(status.get("restartCount", 0) for status in statuses)
    ends = [
        ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for status in statuses
    ]
    last = max((end for end in ends if end), default="")
    return Restarts(f"{restarts}|{last}") if restarts and last else str(restarts)


def node_status(node: Manifest) -> str:
    conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or ()}
    shown = {"True": "Ready", "False": "NotReady"}.get(
        conditions.get("Ready", ""), "NotReady" if conditions else "Unknown"
    )
    return shown + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def node_roles(node: Manifest) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or NONE


def ports(service: Manifest) -> str:
    def one(port: Mapping[str, Any]) -> str:
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port['port']}{outside}/{port.get('protocol', 'TCP')}"

    return ",".join(one(port) for port in service["spec"].get("ports") or ()) or NONE


def event_object(event: Manifest) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def last_seen(event: Manifest) -> Age:
    series = (event.get("series") or {}).get("lastObservedTime")
    return Age(
        series
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )


def first_seen(event: Manifest) -> Age:
    return Age(
        event.get("firstTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    )


def event_source(event: Manifest) -> str:
    source = event.get("source") or {}
    parts = (source.get("component") or event.get("reportingComponent") or "", source.get("host") or "")
    return ", ".join(part for part in parts if part)


def endpoints_of(endpoints: Manifest) -> str:
    found = [
        f"{address['ip']}:{port['port']}"
        for subset in endpoints.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    more = f" + {len(found) - 3} more..." if len(found) > 3 else ""
    return ",".join(found[:3]) + more if found else NONE


def claim_size(claim: Manifest) -> str:
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", ""))


def ingress_hosts(ingress: Manifest) -> str:
    """The first three names that it answers to."""
    rules = ingress["spec"].get("rules") or ()
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    more = f" + {len(rules) - 3} more..." if len(hosts) > 3 else ""
    return ",".join(hosts[:3]) + more if hosts else "*"


def ingress_address(ingress: Manifest) -> str:
    balancers = ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    addresses = ",".join(sorted({each.get("ip") or each.get("hostname") or "" for each in balancers} - {""}))
    return addresses if len(addresses) <= 16 else f"{addresses[:13]}..."
