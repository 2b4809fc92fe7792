"""Endpoints and EndpointSlices: the ready pods of each Service. Pure but for `Endpoints`.

Forwarding connections to them is `proxy.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import POD, SERVICE, Object, Pod, Service, ServicePort, View

MANAGER = "devcluster-endpoints"


class EndpointConditions(View, frozen=True):
    ready: bool | None = None


class Endpoint(View, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class EndpointPort(View, frozen=True):
    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(Object, frozen=True):
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", EndpointSlice)
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints", Object)
SERVICE_NAME = "kubernetes.io/service-name"


@dataclass(frozen=True)
class Backend:
    """One pod behind a service, and the numbers that the service's ports have there."""

    pod: Pod
    ready: bool
    ports: tuple[tuple[ServicePort, int], ...]


def is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def backends(service: Service, pods: Iterable[Pod]) -> list[Backend]:
    """The pods that the service selects and that have an address, oldest name first."""
    found = []
    for pod in sorted(pods, key=lambda each: each.metadata.name):
        over = pod.status.phase in ("Succeeded", "Failed") or not pod.status.pod_ip
        if over or not selects(service, pod):
            continue
        leaving = pod.metadata.deletion_timestamp is not None
        ready = service.spec.publish_not_ready_addresses or (is_ready(pod) and not leaving)
        ports = [
            (port, number) for port in service.spec.ports if (number := number_of(port, pod)) is not None
        ]
        found.append(Backend(pod, ready, tuple(ports)))
    return found


def selects(service: Service, pod: Pod) -> bool:
    selector = service.spec.selector.items()
    same = pod.metadata.namespace == service.metadata.namespace
    return same and bool(selector) and selector <= pod.metadata.labels.items()


def services_of(pod: Pod, services: Cache[Service]) -> list[Key]:
    """The services that select the pod."""
    of_namespace = services.list(pod.metadata.namespace)
    return [Key(s.metadata.namespace, s.metadata.name) for s in of_namespace if selects(s, pod)]


def number_of(port: ServicePort, pod: Pod) -> int | None:
    """The target port in that pod; None where no container has a port of that name."""
    target = port.target_port if port.target_port is not None else port.port
    if isinstance(target, int) or target.isdecimal():
        return int(target)
    named = {each.name: each.container_port for c in pod.spec.containers for each in c.ports}
    return named.get(target)


def slices(service: Service, found: Sequence[Backend]) -> list[Manifest]:
    """The EndpointSlices of a service: one for each set of port numbers, since a slice has one set."""
    groups: dict[tuple[tuple[ServicePort, int], ...], list[Backend]] = {}
    for backend in found:
        groups.setdefault(backend.ports, []).append(backend)
    if not groups:
        groups = {tuple((port, port.port) for port in service.spec.ports): []}
    return [
        {
            "metadata": {
                **_metadata(service, f"{service.metadata.name}-{number}"),
                "labels": {SERVICE_NAME: service.metadata.name},
            },
            "addressType": "IPv4",
            "ports": [_port(port, target) for port, target in ports],
            "endpoints": [_endpoint(backend) for backend in group],
        }
        for number, (ports, group) in enumerate(groups.items())
    ]


def endpoints(service: Service, found: Sequence[Backend]) -> Manifest:
    """The older form of the same."""
    groups: dict[tuple[tuple[ServicePort, int], ...], list[Backend]] = {}
    for backend in found:
        groups.setdefault(backend.ports, []).append(backend)
    subsets = []
    for ports, group in groups.items():
        ready = [_address(each) for each in group if each.ready]
        unready = [_address(each) for each in group if not each.ready]
        subset: Manifest = {"ports": [_port(port, target) for port, target in ports]}
        subsets.append(
            subset
            | ({"addresses": ready} if ready else {})
            | ({"notReadyAddresses": unready} if unready else {})
        )
    return {"metadata": _metadata(service, service.metadata.name), "subsets": subsets}


def _metadata(service: Service, name: str) -> Manifest:
    owner = owner_reference(service, SERVICE)
    return {"name": name, "namespace": service.metadata.namespace, "ownerReferences": [owner]}


def _port(port: ServicePort, number: int) -> Manifest:
    return {"name": port.name, "port": number, "protocol": port.protocol}


def _endpoint(backend: Backend) -> Manifest:
    leaving = backend.pod.metadata.deletion_timestamp is not None
    serving = is_ready(backend.pod)
    return {
        "addresses": [backend.pod.status.pod_ip],
        "conditions": {"ready": backend.ready, "serving": serving, "terminating": leaving},
        "nodeName": backend.pod.spec.node_name,
        "targetRef": _target(backend.pod),
    }


def _address(backend: Backend) -> Manifest:
    return {
        "ip": backend.pod.status.pod_ip,
        "nodeName": backend.pod.spec.node_name,
        "targetRef": _target(backend.pod),
    }


def _target(pod: Pod) -> Manifest:
    metadata = pod.metadata
    return {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


class Endpoints:
    """Keeps the endpoints of every service that has a selector."""

    def __init__(
        self, client: Client, services: Cache[Service], pods: Cache[Pod], known: Cache[EndpointSlice]
    ) -> None:
        self._client, self._services, self._pods, self._known = client, services, pods, known
        self._written: dict[Key, tuple[list[Manifest], Manifest]] = {}

    def controller(self) -> Controller:
        watches = ((POD, lambda pod: services_of(pod, self._services)), (ENDPOINT_SLICE, _service_of))
        return Controller("endpoints", self.reconcile, for_=SERVICE, watches=watches)

    async def reconcile(self, key: Key) -> Result:
        """Bring the endpoints of one service in line with its pods."""
        service = self._services.get(key)
        if service is None or service.metadata.deletion_timestamp is not None or not service.spec.selector:
            self._written.pop(key, None)
            return Result.done()
        found = backends(service, self._pods.list(key.namespace, service.spec.selector))
        wanted = slices(service, found), endpoints(service, found)
        there = {
            each.metadata.name
            for each in self._known.list(key.namespace, {SERVICE_NAME: key.name})
            if any(owner.uid == service.metadata.uid for owner in each.metadata.owner_references)
        }
        names = {manifest["metadata"]["name"] for manifest in wanted[0]}
        if self._written.get(key) != wanted or not names <= there:
            await self._write(*wanted)
            self._written[key] = wanted
        for surplus in there - names:
            await self._client.delete(ENDPOINT_SLICE, surplus, key.namespace)
        return Result.done()

    async def _write(self, wanted: Iterable[Manifest], older: Manifest) -> None:
        for manifest in wanted:
            await self._client.apply(ENDPOINT_SLICE, manifest, manager=MANAGER)
        await self._client.apply(ENDPOINTS, older, manager=MANAGER)


def _service_of(found: EndpointSlice) -> list[Key]:
    name = found.metadata.labels.get(SERVICE_NAME)
    return [Key(found.metadata.namespace, name)] if name else []
