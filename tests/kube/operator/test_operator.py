"""Starting and stopping in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.http.probes import Probes
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, NODE, SECRET
from elasticjob.kube.operator.operator import Operator
from elasticjob.kube.operator.rungroup import Group
from lab.build.objects import bookmark, event, manifest
from lab.running import running
from lab.waiting import PATIENCE
from tests.kit.kube.stub import Answer, Stub, stream, until

READY = stream(event("ADDED", manifest("a")), bookmark(5, initial_done=True))


class Part:
    """Notes when it starts and ends."""

    def __init__(self, name: str, notes: list[str], fails: bool = False) -> None:
        self.name = name
        self.notes = notes
        self.fails = fails

    async def run(self) -> None:
        self.notes.append(f"+{self.name}")
        try:
            if self.fails:
                raise RuntimeError(f"{self.name} broke")
            await asyncio.Event().wait()
        finally:
            self.notes.append(f"-{self.name}")


@asynccontextmanager
async def operating(*script: Answer, probes: str | None = None) -> AsyncIterator[tuple[Operator, Stub]]:
    clock = VirtualClock()
    async with Stub() as stub, stub.client(clock) as client:
        stub.then(*script)
        yield Operator(client, "ns", probes=probes, metrics=CollectorRegistry(), grace=5), stub


async def test_groups_start_in_order_and_stop_in_theirs() -> None:
    notes: list[str] = []
    async with operating() as (operator, _):
        for group in reversed(Group):
            operator.add(Part(group.name, notes), group)
        async with running(operator):
            pass
        assert notes == [
            *("+HTTP", "+WEBHOOKS", "+CACHES", "+OTHERS", "+CONTROLLERS"),
            *("-OTHERS", "-CONTROLLERS", "-CACHES", "-WEBHOOKS", "-HTTP"),
        ]


async def test_controllers_run_only_when_all_caches_are_in_step() -> None:
    runs: list[Key] = []

    async def reconcile(key: Key) -> Result:
        assert secrets.synced
        runs.append(key)
        return Result.done()

    async with operating(READY) as (operator, stub):
        secrets = operator.cache(SECRET)
        operator.add(Controller("c", reconcile, for_=SECRET, owns=(CONFIG_MAP,)))
        task = asyncio.create_task(operator.run())
        maps = operator.cache(CONFIG_MAP)
        await until(lambda: len(stub.seen) == 2 and (secrets.synced or maps.synced))
        assert runs == []
        operator.stop()
        await task


async def test_a_controller_works_on_shared_caches() -> None:
    done = asyncio.Event()

    async def reconcile(key: Key) -> Result:
        assert operator.cache(CONFIG_MAP).get(key) is not None
        done.set()
        return Result.done()

    async with operating(READY) as (operator, stub):
        assert operator.cache(CONFIG_MAP) is operator.cache(CONFIG_MAP)
        operator.add(Controller("c", reconcile, for_=CONFIG_MAP))
        operator.add(Controller("d", reconcile, for_=CONFIG_MAP))
        task = asyncio.create_task(operator.run())
        await asyncio.wait_for(done.wait(), PATIENCE)
        assert len(stub.seen) == 1
        assert stub.seen[0].path == "/api/v1/namespaces/ns/configmaps"
        operator.stop()
        await task


async def test_a_cluster_scoped_kind_is_cached_whole() -> None:
    async with operating(READY) as (operator, stub):
        operator.cache(NODE)
        async with running(operator):
            assert stub.seen[0].path == "/api/v1/nodes"


async def test_a_part_that_breaks_brings_all_down_and_is_raised() -> None:
    notes: list[str] = []
    async with operating() as (operator, _):
        operator.add(Part("good", notes))
        operator.add(Part("bad", notes, fails=True), Group.CONTROLLERS)
        with pytest.raises(RuntimeError, match="bad broke"):
            await operator.run()
        assert notes == ["+good", "+bad", "-bad", "-good"]


async def test_cancellation_stops_in_order_too() -> None:
    notes: list[str] = []
    async with operating() as (operator, _):
        operator.add(Part("web", notes), Group.WEBHOOKS)
        operator.add(Part("work", notes), Group.CONTROLLERS)
        task = asyncio.create_task(operator.run())
        await operator.wait_started()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert notes == ["+web", "+work", "-work", "-web"]


async def test_stopping_while_caches_are_not_in_step() -> None:
    async with operating() as (operator, stub):
        operator.cache(CONFIG_MAP)
        task = asyncio.create_task(operator.run())
        waiting = asyncio.create_task(operator.wait_started())
        await until(lambda: len(stub.seen) == 1)
        operator.stop()
        await task
        with pytest.raises(RuntimeError, match="stopped before"):
            await waiting


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it(number: signal.Signals) -> None:
    async with operating() as (operator, _):
        task = asyncio.create_task(operator.run())
        await operator.wait_started()
        os.kill(os.getpid(), number)
        await task


async def test_a_run_in_flight_finishes_within_the_grace_period() -> None:
    started, go, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def reconcile(key: Key) -> Result:
        started.set()
        await go.wait()
        ended.append(key.name)
        return Result.done()

    async with operating(READY) as (operator, _):
        operator.add(Controller("c", reconcile, for_=CONFIG_MAP))
        task = asyncio.create_task(operator.run())
        await started.wait()
        operator.stop()
        await asyncio.sleep(0)
        go.set()
        await task
        assert ended == ["a"]


async def test_a_run_that_does_not_end_is_cancelled_after_the_grace_period() -> None:
    started, cancelled = asyncio.Event(), list[str]()

    async def reconcile(key: Key) -> Result:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(key.name)
            raise
        return Result.done()

    async with operating(READY) as (operator, _):
        operator.add(Controller("c", reconcile, for_=CONFIG_MAP))
        task = asyncio.create_task(operator.run())
        await started.wait()
        operator.stop()
        assert isinstance(operator.clock, VirtualClock)
        await operator.clock.advance(4.9)
        assert cancelled == []
        await operator.clock.advance(0.2)
        await task
        assert cancelled == ["a"]


async def get(operator: Operator, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(operator.url + path) as response:
        return response.status, await response.text()


async def test_probes_and_metrics() -> None:
    problem: str | None = "the lighthouse is dark"
    async with operating(READY, probes="127.0.0.1:0") as (operator, _):
        operator.ready_when("lighthouse", lambda: problem)
        operator.cache(CONFIG_MAP)
        async with running(operator):
            status, text = await get(operator, "/readyz")
            assert (status, "[-] lighthouse: the lighthouse is dark" in text) == (503, True)
            problem = None
            assert await get(operator, "/readyz") == (200, "[+] started\n[+] caches\n[+] lighthouse\nok\n")
            [informer] = operator._informers
            informer.last_heard -= 46
            _, text = await get(operator, "/readyz")
            assert "[+] caches: nothing was heard of configmaps for 46 s\n" in text
            assert await get(operator, "/healthz") == (200, "ok\n")
            status, text = await get(operator, "/metrics")
            assert (status, "elasticjob_kube_event_loop_lag_seconds_count" in text) == (200, True)
            assert 'rest_client_requests_total{code="200"' in text


async def test_two_parts_of_one_type_are_both_waited_for() -> None:
    class Waiting(Part):
        def ready(self) -> str:
            return f"{self.name} is not ready"

    async with operating(probes="127.0.0.1:0") as (operator, _):
        for name in ("one", "two"):
            operator.add(Waiting(name, []))
        async with running(operator):
            _, text = await get(operator, "/readyz")
        assert "[-] Waiting: one is not ready\n[-] Waiting 2: two is not ready\n" in text


def test_probes_know_an_ipv6_host() -> None:
    """Not every machine has one to listen on."""
    probes = Probes("[::1]:8081", CollectorRegistry(), {})
    assert (probes.url, probes._host) == ("http://[::1]:8081", "::1")


async def test_a_kind_is_cached_in_one_way_only() -> None:
    async with operating() as (operator, _):
        operator.cache(CONFIG_MAP, labels="x=y")
        assert operator.cache(CONFIG_MAP).labels == "x=y"
        with pytest.raises(ValueError, match="selectors"):
            operator.cache(CONFIG_MAP, labels="x=z")
        with pytest.raises(ValueError, match="as ConfigMap"):
            operator.cache(CONFIG_MAP.untyped())


async def test_a_part_that_cannot_start_brings_all_down_and_is_raised() -> None:
    class Late(Part):
        async def wait_started(self) -> None:
            raise RuntimeError("it never will")

    notes: list[str] = []
    async with operating() as (operator, _):
        operator.add(Late("late", notes))
        with pytest.raises(RuntimeError, match="it never will"):
            await asyncio.wait_for(operator.run(), PATIENCE)
        assert notes == ["+late", "-late"]


async def test_the_grace_period_is_for_all_groups_together() -> None:
    class Slow(Part):
        def drain(self) -> None:
            self.notes.append("asked")

    notes: list[str] = []
    async with operating() as (operator, _):
        for group in (Group.OTHERS, Group.CONTROLLERS, Group.HTTP):
            operator.add(Slow(group.name, notes), group)
        task = asyncio.create_task(operator.run())
        await operator.wait_started()
        operator.stop()
        assert isinstance(operator.clock, VirtualClock)
        await operator.clock.advance(5.1)
        await until(task.done)
        assert notes.count("asked") == 3


async def test_what_comes_after_the_start_is_refused_instead_of_never_started() -> None:
    async with operating() as (operator, _), running(operator):
        with pytest.raises(RuntimeError, match="before run"):
            operator.cache(SECRET)
        with pytest.raises(RuntimeError, match="before run"):
            operator.add(Part("late", []))
