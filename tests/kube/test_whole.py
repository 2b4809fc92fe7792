"""The framework as a whole, on devcluster and on a real server: a difference is a bug of one of them."""

from __future__ import annotations

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import reference
from elasticjob.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT
from lab.running import running
from tests.kit.kube.stub import until
from tests.kit.traps.operators import operator_of


async def test_errors_are_the_same_everywhere(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound) as absent:
        await client.get(CONFIG_MAP, "a", namespace)
    assert absent.value.details["name"] == "a"
    made = await client.create(CONFIG_MAP, {"metadata": {"name": "a"}, "data": {"x": "1"}}, namespace)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAP, {"metadata": {"name": "a"}}, namespace)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, "a", namespace, uid="another")
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAP, "a", namespace, version="1")
    test = [{"op": "test", "path": "/data/x", "value": "2"}]
    with pytest.raises(Invalid):
        await client.json_patch(CONFIG_MAP, "a", test, namespace)
    ghost = {"metadata": {"name": "ghost", "namespace": namespace, "uid": made.metadata.uid}}
    with pytest.raises(Conflict):
        await client.apply(CONFIG_MAP, ghost, manager="me")


async def test_server_side_apply_and_its_conflicts(client: Client, namespace: str) -> None:
    manifest = {"metadata": {"name": "a", "namespace": namespace}, "data": {"x": "1", "y": "1"}}
    first = await client.apply(CONFIG_MAP, manifest, manager="one")
    again = await client.apply(CONFIG_MAP, manifest, manager="one")
    assert again.metadata.resource_version == first.metadata.resource_version
    rival = {"metadata": {"name": "a", "namespace": namespace}, "data": {"x": "2"}}
    with pytest.raises(Conflict, match="one"):
        await client.apply(CONFIG_MAP, rival, manager="two", force=False)
    assert (await client.apply(CONFIG_MAP, rival, manager="two")).data == {"x": "2", "y": "1"}
    less = {"metadata": {"name": "a", "namespace": namespace}, "data": {}}
    assert (await client.apply(CONFIG_MAP, less, manager="one")).data == {"x": "2"}


async def test_caches_follow_labels_and_deletions(client: Client, namespace: str) -> None:
    operator = operator_of(client, namespace)
    cache = operator.cache(CONFIG_MAP, labels="color=red")
    async with running(operator):
        for name, color in (("a", "red"), ("b", "blue")):
            manifest = {"metadata": {"name": name, "labels": {"color": color}}}
            await client.create(CONFIG_MAP, manifest, namespace)
        await until(lambda: [each.metadata.name for each in cache.list()] == ["a"])
        await client.merge_patch(CONFIG_MAP, "b", {"metadata": {"labels": {"color": "red"}}}, namespace)
        await until(lambda: len(cache) == 2)
        await client.merge_patch(CONFIG_MAP, "a", {"metadata": {"labels": {"color": None}}}, namespace)
        await until(lambda: [each.metadata.name for each in cache.list()] == ["b"])
        await client.delete(CONFIG_MAP, "b", namespace)
        await until(lambda: len(cache) == 0)


async def test_events_are_written_and_counted(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAP, {"metadata": {"name": "a"}}, namespace)
    async with running(operator_of(client, namespace)) as operator:
        for _ in range(3):
            operator.recorder.event(reference(CONFIG_MAP, made), "Warning", "Lost", "a worker is lost")
    fields = "involvedObject.kind=ConfigMap,involvedObject.name=a"
    found = await client.list(EVENT, namespace, fields=fields)
    assert [(each.reason, each.message, each.count) for each in found] == [("Lost", "a worker is lost", 3)]
