"""Pods and services: quality of service, graceful deletion, addresses; more is in tests/conformance."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from elasticjob.devcluster.server.kinds.services import RANGE
from tests.kit.devcluster.api import PODS, Api, pod

SERVICES = "/api/v1/namespaces/default/services"


async def test_quality_of_service(api: Api) -> None:
    for expected, resources in {
        "BestEffort": ({}, {"limits": {"nvidia.com/gpu": "1"}}),
        "Burstable": ({"requests": {"cpu": "1"}},),
        "Guaranteed": ({"limits": {"cpu": "1", "memory": "1Gi"}},),
    }.items():
        for each in resources:
            body = pod("p", containers=[{"name": "c", "image": "i", "resources": each}])
            assert (await api.post(PODS, body, dryRun="All")).body["status"]["qosClass"] == expected


async def test_a_grace_that_was_shortened_grows_no_more(api: Api) -> None:
    await api.post(PODS, pod("p", nodeName="n"))
    await api.delete(f"{PODS}/p", gracePeriodSeconds="5")
    longer = (await api.delete(f"{PODS}/p")).body["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5


async def test_services_get_addresses_of_their_own(api: Api) -> None:
    async def make(name: str, **spec: Any) -> dict[str, Any]:
        reply = await api.post(
            SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]} | spec}
        )
        assert reply.code == 201, reply.body
        found: dict[str, Any] = reply.body["spec"]
        return found

    first, second = await make("a"), await make("b")
    assert ip_address(first["clusterIP"]) in RANGE
    assert first["clusterIP"] != second["clusterIP"]
    assert (await make("d", clusterIP="127.96.7.7"))["clusterIP"] == "127.96.7.7"
