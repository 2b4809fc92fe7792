"""Services: defaults, checks, and the allocation of cluster addresses."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network

from elasticjob.devcluster.server.model.errors import Cause, internal
from elasticjob.devcluster.server.model.names import missing, plain, unsupported, wrong
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.model.strategy import Strategy, immutable, put

RANGE = IPv4Network("127.96.0.0/11")
"""Large: two clusters of one machine that drew the same address would be each other's."""
_TYPES = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]


def default_service(service: Manifest) -> None:
    spec = service.setdefault("spec", {})
    put(spec, type="ClusterIP", sessionAffinity="None")
    if spec["type"] != "ExternalName":
        put(spec, internalTrafficPolicy="Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        put(spec, externalTrafficPolicy="Cluster")
    for port in spec.get("ports") or ():
        put(port, protocol="TCP", targetPort=port.get("port"))


def check_service(service: Manifest) -> Iterator[Cause]:
    spec = service["spec"]
    ports = spec.get("ports") or ()
    if spec["type"] not in _TYPES:
        yield unsupported("spec.type", spec["type"], _TYPES)
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield missing("spec.ports")
    for index, port in enumerate(ports):
        if not 0 < (port.get("port") or 0) < 65536:
            yield wrong(
                f"spec.ports[{index}].port", port.get("port", 0), "must be between 1 and 65535, inclusive"
            )
        if len(ports) > 1 and not port.get("name"):
            yield missing(f"spec.ports[{index}].name")
    doors = [(port.get("protocol"), port.get("port")) for port in ports]
    for index, (protocol, number) in enumerate(doors):
        if (protocol, number) in doors[:index]:
            shown = plain(
                {
                    "Name": "",
                    "Protocol": protocol,
                    "AppProtocol": None,
                    "Port": number,
                    "TargetPort": 0,
                    "NodePort": 0,
                }
            )
            yield Cause(f"spec.ports[{index}]", f"Duplicate value: {shown}", "FieldValueDuplicate")
    names = [port.get("name") for port in ports if port.get("name")]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Cause(f"spec.ports[{index}].name", f'Duplicate value: "{name}"', "FieldValueDuplicate")


def check_service_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from check_service(new)
    if "ExternalName" not in (new["spec"]["type"], old["spec"]["type"]):
        yield from immutable(old["spec"].get("clusterIP"), new["spec"].get("clusterIP"), "spec.clusterIPs[0]")


def keep_address(new: Manifest, old: Manifest) -> None:
    """An update without an address keeps the present one."""
    for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if old["spec"].get(name) and not new["spec"].get(name):
            new["spec"][name] = old["spec"][name]


def allocate(service: Manifest, taken: Iterable[str]) -> None:
    """Give a new service its address: as asked, or any free one."""
    spec = service["spec"]
    if spec["type"] == "ExternalName":
        return
    address = spec.get("clusterIP") or _free(set(taken))
    spec |= {
        "clusterIP": address,
        "clusterIPs": [address],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }


def give_node_ports(service: Manifest) -> None:
    """A port of every node for each port of a service that asks for them."""
    spec = service["spec"]
    if spec["type"] in ("NodePort", "LoadBalancer"):
        for port in spec.get("ports") or ():
            put(port, nodePort=30000 + secrets.randbelow(2768))


def _free(taken: set[str]) -> str:
    """A free address, drawn at random: several clusters of one machine share its loopback network."""
    hosts = RANGE.num_addresses - 2
    start = secrets.randbelow(hosts)
    addresses = (str(RANGE[1 + (start + step) % hosts]) for step in range(hosts))
    found = next((address for address in addresses if address not in taken), None)
    if found is None:
        raise internal(f"no free address is left in {RANGE}")
    return found


def service_strategy(addresses: Callable[[], Iterable[str]]) -> Strategy:
    """`addresses` gives the cluster addresses in use."""

    def start(service: Manifest) -> None:
        service["status"] = {"loadBalancer": {}}
        allocate(service, addresses())
        give_node_ports(service)

    return Strategy(default_service, start, check_service, check_service_update)
