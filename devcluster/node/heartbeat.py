"""The Node objects of this machine, and their heartbeat leases."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import psutil

from elasticjob.devcluster.node.logserver import LogAddress
from elasticjob.devcluster.node.pod.status import stamp
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import LEASE, NODE

MANAGER = "kubelet"
LEASES = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class VirtualNode:
    """One node of the cluster: its name and its capacity. Several nodes may share one machine."""

    name: str = "devcluster"
    capacity: Mapping[str, str] = field(default_factory=lambda: machine_capacity())
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()


def machine_capacity() -> dict[str, str]:
    """The capacity of this machine, its disk included, with room for 110 pods."""
    memory, disk = psutil.virtual_memory().total // 1024, psutil.disk_usage("/").total // 1024
    cores = str(os.cpu_count() or 1)
    return {"cpu": cores, "memory": f"{memory}Ki", "ephemeral-storage": f"{disk}Ki", "pods": "110"}


class Heartbeat:
    """Registers the nodes and renews their leases: `register()`, then `run()` until cancelled."""

    def __init__(
        self, client: Client, nodes: Sequence[VirtualNode], logs: LogAddress, host: str, clock: Clock
    ) -> None:
        self._client, self._nodes, self._clock = client, nodes, clock
        self._logs, self._host = logs, host

    async def register(self) -> None:
        """The Node objects exist and are Ready."""
        now = self._clock.now()
        for node in self._nodes:
            await self._client.apply(NODE, node_manifest(node, self._logs), manager=MANAGER)
            shown = node_status(node, self._host, now, self._logs)
            status = {"metadata": {"name": node.name}, "status": shown}
            await self._client.apply(NODE, status, manager=MANAGER, subresource="status")

    async def run(self) -> None:
        while True:
            for node in self._nodes:
                try:
                    await self._client.apply(LEASE, lease(node.name, self._clock.now()), manager=MANAGER)
                except KubeError as error:
                    log.warning("a lease is not renewed", extra={"node": node.name, "error": str(error)})
            await self._clock.sleep(RENEW_SECONDS)


def node_manifest(node: VirtualNode, logs: LogAddress) -> Manifest:
    """The Node as applied; labels and annotations that others add stay."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
        **node.labels,
    }
    metadata = {"name": node.name, "labels": labels, "annotations": dict(logs.annotations)}
    taints = {"spec": {"taints": [dict(taint) for taint in node.taints]}} if node.taints else {}
    return {"metadata": metadata, **taints}


def node_status(node: VirtualNode, host: str, now: datetime, logs: LogAddress) -> Manifest:
    """Node conditions: always ready and without pressure, since the machine is the user's own."""
    fine = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
    }
    conditions = [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp(now),
            "lastTransitionTime": stamp(now),
        }
        for type_, (status, reason, message) in fine.items()
    ]
    addresses = [{"type": "InternalIP", "address": host}, {"type": "Hostname", "address": node.name}]
    info = {
        "kubeletVersion": "devcluster",
        "kubeProxyVersion": "",
        "containerRuntimeVersion": "processes://1",
        "operatingSystem": "linux",
        "architecture": platform.machine(),
        "kernelVersion": platform.release(),
        "osImage": platform.platform(terse=True),
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
    capacity = dict(node.capacity)
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "addresses": addresses,
        "nodeInfo": info,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": logs.port}},
    }


def lease(name: str, now: datetime) -> Manifest:
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    return {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}
