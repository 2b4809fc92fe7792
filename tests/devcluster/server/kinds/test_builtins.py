"""Pods and services: quality of service, graceful deletion, addresses."""

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


async def test_a_scheduled_pod_waits_for_the_final_delete(api: Api) -> None:
    await api.post(PODS, pod("p"))
    bound = await api.post(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n1"}})
    assert bound.code == 201
    assert (await api.post(f"{PODS}/p/binding", {"target": {"name": "n2"}})).code == 409
    marked = (await api.delete(f"{PODS}/p")).body["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30
    shorter = (await api.delete(f"{PODS}/p", gracePeriodSeconds="5")).body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    longer = (await api.delete(f"{PODS}/p")).body["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5
    found = (await api.get(f"{PODS}/p")).body
    assert found["spec"]["nodeName"] == "n1"
    assert found["status"]["conditions"][0]["type"] == "PodScheduled"
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await api.get(f"{PODS}/p")).code == 404


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
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    headless = await make("c", clusterIP="None")
    assert headless["clusterIPs"] == ["None"]
    assert (await make("d", clusterIP="127.96.7.7"))["clusterIP"] == "127.96.7.7"
