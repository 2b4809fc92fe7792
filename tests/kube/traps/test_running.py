"""Rows 1, 2, 9, 13, 14, 22 to 25 of the trap table: what befalls runs of a key. Each change gets its run."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import WAITING, Recorder, reference
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.controller import Result
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, SECRET
from elasticjob.kube.testing import FaultProxy, Late, Stall, asking
from tests.kit.kube.stub import until
from tests.kit.traps.operators import errors, for_maps, make, operator_of, results, running, total
from tests.kit.waiting import PATIENCE


async def change(client: Client, namespace: str, name: str, **data: str) -> str:
    """Change an object; returns its new resourceVersion."""
    changed = await client.merge_patch(CONFIG_MAP, name, {"data": data}, namespace)
    return changed.metadata.resource_version


async def test_01_many_changes_during_a_run_are_followed_by_one_more_run(
    client: Client, namespace: str
) -> None:
    gate, seen = asyncio.Event(), list[str]()
    at_once = Counter[Key]()

    async def act(key: Key) -> None:
        at_once[key] += 1
        assert at_once[key] == 1
        await gate.wait()
        found = maps.get(key)
        seen.append(found.metadata.resource_version if found else "")
        at_once[key] -= 1

    operator = operator_of(client, namespace, for_maps(act))
    maps = operator.cache(CONFIG_MAP)
    await make(client, namespace, "a")
    async with running(operator):
        await until(lambda: at_once)
        for number in range(20):
            newest = await change(client, namespace, "a", n=str(number))
        await until(lambda: maps.version >= int(newest))
        gate.set()
        await until(lambda: len(seen) == 2)
    assert seen == [newest, newest]
    assert results(operator) == {"success": 2}


async def test_02_a_change_consumes_the_pause_that_a_run_asked_for(client: Client, namespace: str) -> None:
    async def act(_: Key) -> Result:
        runs.append(clock.monotonic())
        return Result.again(timedelta(seconds=600)) if len(runs) == 1 else Result.done()

    clock, runs = VirtualClock(), list[float]()
    operator = operator_of(client, namespace, for_maps(act), clock=clock)
    await make(client, namespace, "a")
    async with running(operator):
        await until(lambda: len(runs) == 1)
        await change(client, namespace, "a", x="y")
        await until(lambda: len(runs) == 2)
        await clock.advance(601)
        assert len(runs) == 2


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


async def test_22_a_fresh_change_overtakes_the_backlog_of_the_start(client: Client, namespace: str) -> None:
    gate, order = asyncio.Event(), list[str]()

    async def act(key: Key) -> None:
        order.append(key.name)
        await gate.wait()

    for number in range(30):
        await make(client, namespace, f"old-{number}")
    operator = operator_of(client, namespace, for_maps(act, concurrency=2))
    async with running(operator):
        await until(lambda: len(order) == 2)
        await make(client, namespace, "fresh")
        await until(lambda: operator.cache(CONFIG_MAP).get(Key(namespace, "fresh")))
        assert len(order) == 2
        gate.set()
        await until(lambda: len(order) == 31)
    assert order.index("fresh") == 2


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


async def test_23_a_recorder_of_events_may_drop_and_counts_what_it_drops(
    client: Client, namespace: str
) -> None:
    metrics = Metrics()
    recorder = Recorder(client, "traps", metrics=metrics)
    about = reference(CONFIG_MAP, await make(client, namespace, "a"))
    for number in range(WAITING + 5):
        recorder.event(replace(about, uid=f"{number}"), "Normal", "Said", f"sentence {number}")

    def count(fate: str) -> float:
        return metrics.registry.get_sample_value("elasticjob_kube_events_total", {"fate": fate}) or 0

    assert count("dropped") == 5
    sending = asyncio.create_task(recorder.run())
    await until(lambda: count("sent") >= 3)
    sending.cancel()
    await asyncio.wait({sending})
    assert len(await client.list(EVENT, namespace)) >= 3


async def test_24_an_exception_backs_off_and_counts_and_others_go_on(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(key: Key) -> None:
        runs[key.name] += 1
        if key.name == "bad" and runs["bad"] < 4:
            raise ZeroDivisionError("a bug")

    runs = Counter[str]()
    operator = operator_of(client, namespace, for_maps(act, concurrency=1))
    async with running(operator):
        for name in ("bad", "good"):
            await make(client, namespace, name)
        await until(lambda: runs["bad"] == 4 and runs["good"] == 1)
        await until(lambda: results(operator).get("success", 0) >= 2)
    assert results(operator)["error"] == 3
    assert total(operator, "controller_runtime_reconcile_panics_total") == 3
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [
        True
    ] * 3


async def test_24_a_cancelled_future_costs_no_worker(client: Client, namespace: str) -> None:
    async def act(key: Key) -> None:
        runs[key.name] += 1
        if runs[key.name] == 1:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    runs = Counter[str]()
    operator = operator_of(client, namespace, for_maps(act, concurrency=1))
    async with running(operator):
        for name in ("a", "b", "c"):
            await make(client, namespace, name)
        await until(lambda: runs == {"a": 2, "b": 2, "c": 2})
    assert total(operator, "controller_runtime_reconcile_panics_total") == 3


async def test_25_a_stop_lets_a_run_finish_its_writes(client: Client, namespace: str) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def act(key: Key) -> None:
        if not began.is_set():
            await change(client, namespace, key.name, first="written")
            began.set()
            await gate.wait()
            await change(client, namespace, key.name, second="written")
            finished.append(key.name)

    finished: list[str] = []
    await make(client, namespace, "a")
    operator = operator_of(client, namespace, for_maps(act))
    task = asyncio.create_task(operator.run())
    await asyncio.wait_for(began.wait(), PATIENCE)
    operator.stop()
    gate.set()
    await asyncio.wait_for(task, PATIENCE)
    assert finished == ["a"]
    assert (await client.get(CONFIG_MAP, "a", namespace)).data == {"first": "written", "second": "written"}


async def test_25_a_run_whose_write_hangs_is_cancelled_after_the_grace_period(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    async def act(key: Key) -> None:
        try:
            await change(through, namespace, key.name, x="y")
        except asyncio.CancelledError:
            cancelled.append(key.name)
            raise

    cancelled: list[str] = []
    await make(client, namespace, "a")
    proxy.add(asking("patch", "configmaps"), Stall(0))
    clock = VirtualClock()
    operator = operator_of(client, namespace, for_maps(act), clock=clock, grace=10.0)
    task = asyncio.create_task(operator.run())
    await until(lambda: proxy.counts["Stall"])
    operator.stop()
    await until(task.done, clock, longest=10.0)
    await task
    assert cancelled == ["a"]
    assert results(operator) == {}
