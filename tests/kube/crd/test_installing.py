"""Definitions come to a cluster: applied by the server, told beforehand what they change."""

from __future__ import annotations

from copy import deepcopy

from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.installing import install, upgrades
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CRD
from elasticjob.kube.testing import Answer, ApiRequest, FaultProxy, failure, html
from lab.clusters.served import Served
from tests.kit.crd.posting import with_spec

THING: Kind[Manifest] = Kind("example.org", "v1", "Thing", "things", dict)
OLD = with_spec({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})


def without_b() -> Manifest:
    found = deepcopy(OLD)
    del found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"]
    return found


async def test_definitions_are_applied_and_served(client: Client, namespace: str) -> None:
    assert [(one.name, one.exists, one.changes) for one in await upgrades(client, [OLD])] == [
        ("things.example.org", False, ())
    ]
    await install(client, [OLD], "test")
    await client.create(THING, {"metadata": {"name": "a"}, "spec": {"a": "x"}}, namespace)
    assert [(one.exists, one.changes) for one in await upgrades(client, [OLD])] == [(True, ())]
    applied = await client.get(CRD.untyped(), "things.example.org")
    assert "last-applied-configuration" not in str(applied["metadata"])


async def test_a_kind_that_is_established_and_not_served_yet_is_waited_for(served: Served) -> None:
    def discovering(asked: ApiRequest) -> bool:
        return asked.path == "/apis/example.org/v1"

    async with FaultProxy(served.config()) as proxy, Client(proxy.config) as through:
        proxy.add(discovering, failure(404, "NotFound"), nth={1, 2})
        proxy.add(discovering, html(200), nth={3})
        proxy.add(discovering, Answer(200, {}, b"{}"), nth={4})
        await install(through, [OLD], "test")
        assert len(proxy.asked(discovering)) > 4


async def test_what_the_clusters_objects_may_suffer_is_told_before(client: Client) -> None:
    await install(client, [OLD], "test")
    [upgrade] = await upgrades(client, [without_b()])
    assert [change.path for change in upgrade.changes] == ["v1.spec.b"]
    kept = (await client.get(CRD.untyped(), "things.example.org"))["spec"]["versions"][0]["schema"]
    assert "b" in kept["openAPIV3Schema"]["properties"]["spec"]["properties"]
