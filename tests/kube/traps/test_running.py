"""Rows 9, 13, 14 and 23 of the trap table: what befalls runs of a key. Each change gets its run."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Result
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, SECRET
from elasticjob.kube.testing import FaultProxy, Late, asking
from lab.running import running
from tests.kit.kube.stub import until
from tests.kit.traps.operators import errors, for_maps, make, operator_of, results, total


async def change(client: Client, namespace: str, name: str, **data: str) -> str:
    """Change an object; returns its new resourceVersion."""
    changed = await client.merge_patch(CONFIG_MAP, name, {"data": data}, namespace)
    return changed.metadata.resource_version


async def test_09_an_object_deleted_while_it_is_worked_on_is_no_error(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(key: Key) -> None:
        if maps.get(key) is None or (key.name in done):
            return
        done.append(key.name)
        await client.delete(CONFIG_MAP, key.name, key.namespace)
        await client.merge_patch(CONFIG_MAP, key.name, {"data": {"x": "y"}}, key.namespace)

    done: list[str] = []
    operator = operator_of(client, namespace, for_maps(act))
    maps = operator.cache(CONFIG_MAP)
    async with running(operator):
        for name in ("a", "b"):
            await make(client, namespace, name)
        await until(lambda: len(done) == 2 and results(operator).get("success", 0) >= 2)
    assert "error" not in results(operator)
    assert errors(caplog.records) == []


async def test_13_conflicts_are_no_hot_loop_and_the_status_converges(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    """Somebody else writes between each of the first reads and writes."""
    rivals = 6

    async def act(key: Key) -> None:
        nonlocal rivals
        found = await through.get(CONFIG_MAP, key.name, key.namespace)
        if found.data.get("done"):
            return
        if rivals:
            rivals -= 1
            await change(client, namespace, key.name, rival=str(rivals))
        version = {"resourceVersion": found.metadata.resource_version}
        await through.merge_patch(
            CONFIG_MAP, key.name, {"metadata": version, "data": {"done": "yes"}}, key.namespace
        )

    await make(client, namespace, "a")
    operator = operator_of(through, namespace, for_maps(act))
    maps = operator.cache(CONFIG_MAP)
    async with running(operator):
        await until(lambda: (found := maps.get((namespace, "a"))) and found.data.get("done"))
        await until(lambda: results(operator).get("success", 0) >= 1)
    assert results(operator).get("requeue") == 6
    assert "error" not in results(operator)
    assert total(operator, "workqueue_retries_total", name="traps") == 6
    assert len(proxy.asked(asking("patch", "configmaps"))) == 7


async def test_14_never_more_children_than_wanted_however_late_the_watch_is(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    """The children's names are of chance: only reading its own writes keeps their number right."""

    async def act(key: Key) -> Result:
        owner = owners.get(key)
        if owner is not None and len(children.owned_by(owner.metadata.uid)) < 3:
            references = [owner_reference(owner, CONFIG_MAP)]
            metadata = {"generateName": f"{key.name}-", "ownerReferences": references}
            await through.create(SECRET, {"metadata": metadata}, key.namespace)
            return Result.again(timedelta(milliseconds=1))
        return Result.done()

    proxy.add(asking("watch", "secrets"), Late(0.15))
    operator = operator_of(through, namespace, for_maps(act, owns=(SECRET,)))
    owners, children = operator.cache(CONFIG_MAP), operator.cache(SECRET)
    async with running(operator):
        for name in "ab":
            await make(client, namespace, name)
        await until(lambda: len(children) == 6)
        newest = await client.create(SECRET, {"metadata": {"name": "last"}}, namespace)
        await until(lambda: children.version >= int(newest.metadata.resource_version))
    assert len(await client.list(SECRET, namespace)) == 7
    assert total(operator, "elasticjob_kube_gate_timeouts_total") == 0


async def test_23_a_slow_consumer_loses_no_key_and_queues_no_event(client: Client, namespace: str) -> None:
    gate, seen = asyncio.Event(), dict[str, str]()

    async def act(key: Key) -> None:
        await gate.wait()
        found = maps.get(key)
        seen[key.name] = found.data.get("n", "") if found else "gone"

    operator = operator_of(client, namespace, for_maps(act, concurrency=1))
    maps = operator.cache(CONFIG_MAP)
    async with running(operator):
        for name in ("a", "b", "c"):
            await make(client, namespace, name)
        for number in range(30):
            for name in ("a", "b", "c"):
                newest = await change(client, namespace, name, n=str(number))
        await client.delete(CONFIG_MAP, "c", namespace)
        await until(lambda: maps.version > int(newest))
        assert (
            sum(total(operator, "workqueue_depth", name="traps", priority=each) for each in ("0", "-100"))
            <= 4
        )
        gate.set()
        await until(lambda: seen == seen | {"a": "29", "b": "29", "c": "gone"})
