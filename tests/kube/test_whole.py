"""The framework as a whole, on devcluster and on a real server: a difference is a bug of one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import reference
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, SECRET
from elasticjob.kube.operator.operator import Operator
from tests.kit.kube.stub import until


@asynccontextmanager
async def operating(client: Client, namespace: str, *controllers: Controller) -> AsyncIterator[Operator]:
    operator = Operator(client, namespace, probes=None, signals=False)
    for controller in controllers:
        operator.add(controller)
    yield operator


@asynccontextmanager
async def started(operator: Operator) -> AsyncIterator[None]:
    running = asyncio.create_task(operator.run())
    try:
        await operator.wait_started()
        yield
    finally:
        operator.stop()
        await running


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


async def test_a_controller_makes_neither_too_few_nor_too_many(client: Client, namespace: str) -> None:
    """The children's names are of chance: only reading its own writes keeps their number right."""
    wanted, runs = 4, Counter[str]()
    names = ["early", *(f"o{number}" for number in range(8))]

    async def reconcile(key: Key) -> Result:
        runs[key.name] += 1
        owner = owners.get(key)
        if owner is None or "wanted" not in owner.data:
            return Result.done()
        for _ in range(wanted - len(children.owned_by(owner.metadata.uid))):
            metadata = {
                "generateName": f"{key.name}-",
                "namespace": key.namespace,
                "ownerReferences": [owner_reference(owner, CONFIG_MAP)],
            }
            await client.create(SECRET, {"metadata": metadata})
        return Result.again(timedelta(milliseconds=5))

    controller = Controller("family", reconcile, for_=CONFIG_MAP, owns=(SECRET,))
    async with operating(client, namespace, controller) as operator:
        owners, children = operator.cache(CONFIG_MAP), operator.cache(SECRET)
        early, *others = ({"metadata": {"name": name}, "data": {"wanted": "yes"}} for name in names)
        await client.create(CONFIG_MAP, early, namespace)
        async with started(operator):
            for manifest in others:
                await client.create(CONFIG_MAP, manifest, namespace)
            await until(lambda: len(children) == 9 * wanted)
            lost = [item.key for item in children.items()][::3]
            for key in lost:
                await client.delete(SECRET, key.name, namespace)
            await until(lambda: len(children) == 9 * wanted and not any(map(children.meta, lost)))
            before = runs.copy()
            await until(lambda: all(runs[name] > before[name] + 1 for name in names))
            assert len(await client.list(SECRET, namespace)) == 9 * wanted


async def test_caches_follow_labels_and_deletions(client: Client, namespace: str) -> None:
    async with operating(client, namespace) as operator:
        cache = operator.cache(CONFIG_MAP, labels="color=red")
        async with started(operator):
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
    async with operating(client, namespace) as operator, started(operator):
        for _ in range(3):
            operator.recorder.event(reference(CONFIG_MAP, made), "Warning", "Lost", "a worker is lost")
    fields = "involvedObject.kind=ConfigMap,involvedObject.name=a"
    found = await client.list(EVENT, namespace, fields=fields)
    assert [(each.reason, each.message, each.count) for each in found] == [("Lost", "a worker is lost", 3)]
