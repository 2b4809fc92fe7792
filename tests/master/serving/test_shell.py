"""What an unexpected error costs a master: the request, the rule or the look that met it, and no more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from elasticjob.api.rpc.nodes import Watch
from elasticjob.api.sizes.role import Range
from elasticjob.kube.clock import VirtualClock
from elasticjob.master.handlers import dispatch, nodes
from elasticjob.master.serving.shell import Shell
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job, Spec
from lab.virtual.master import join, leave, report, watch
from tests.kit.kube.stub import until
from tests.master.serving.test_server import serving
from tests.master.serving.test_thousands import Crowd

TOKEN = "secret"
TOLD = {"Authorization": f"Bearer {TOKEN}"}
NAMES = ("node-0", "node-1")


class Running:
    """A shell whose loops run in virtual time, with a world of two nodes."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        spec = Spec(job="digits", bounds=Range(least=1, most=2))
        self.shell = Shell(Job(spec=spec, gathering=self.clock.now()), clock=self.clock)
        self.loops = [asyncio.create_task(each) for each in (self.shell.wake(), self.shell.tick())]

    async def wait(self, *requests: Any) -> list[asyncio.Task[Any]]:
        """Send requests that wait."""
        tasks = [asyncio.create_task(self.shell.ask(request)) for request in requests]
        await asyncio.sleep(0)
        return tasks

    @property
    def failed(self) -> dict[str, float]:
        return {loop: count for loop, count in self.shell.failed_passes().items() if count}


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    found = Running()
    for name in NAMES:
        await found.shell.ask(watch(name))
    await asyncio.gather(*(found.shell.ask(join(name)) for name in NAMES))
    yield found
    assert not any(loop.done() for loop in found.loops)
    assert invariants(found.shell.job) == []
    for loop in found.loops:
        loop.cancel()


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("a defect")


def broken_for_node_1(handler: Any) -> Any:
    return lambda job, request, now: broken() if request.node == "node-1" else handler(job, request, now)


@pytest.mark.parametrize("table", [dispatch.LATER, dispatch.EXPIRED], ids=["woken", "expired"])
async def test_an_error_of_one_poll_costs_that_poll(
    running: Running, table: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = running.shell.job.version
    polls = await running.wait(*(watch(name, seen=seen, wait=2.0) for name in NAMES))
    monkeypatch.setitem(table, Watch, broken_for_node_1(table[Watch]))
    if table is dispatch.LATER:
        await running.shell.ask(leave("node-0", 1))
    for _ in range(2):
        await running.clock.advance(1.0)
    done, _ = await asyncio.wait(polls, timeout=5)
    assert len(done) == 2
    assert (polls[0].result().version > seen) == (table is dispatch.LATER)
    assert isinstance(polls[1].exception(), ZeroDivisionError)
    assert running.failed == {"requests": 1.0}


async def test_an_error_of_a_handler_costs_its_request_and_leaves_the_job(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = running.shell.job
    monkeypatch.setitem(dispatch.HANDLERS, type(report("node-0", 1, 1)), broken)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await running.shell.ask(report("node-0", 1, 1))
    assert running.shell.job is before
    assert running.failed == {"requests": 3.0}


@pytest.mark.parametrize("name", dispatch.TIMEOUTS)
async def test_an_error_of_a_timeout_costs_that_rule_and_comes_again_after_a_pause(
    running: Running, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []
    rule = dispatch.TIMEOUTS[name]

    def raises(job: Job, now: datetime) -> Job:
        tried.append(running.clock.monotonic())
        return broken() if len(tried) < 9 else rule(job, now)

    monkeypatch.setitem(dispatch.TIMEOUTS, name, raises)
    began = running.shell.job.account
    for _ in range(400):
        await running.clock.advance(0.25)
        if (job := running.shell.job).running:
            for node in NAMES:
                await running.shell.ask(watch(node, round=job.round))
    assert len(tried) > 9, "it is tried again once its pause is over"
    assert all(after - before <= 12.25 for before, after in pairwise(tried[:8]))
    assert running.failed == {"timeouts": 8.0}
    assert running.shell.job.account != began


@pytest.mark.parametrize("left_out", dispatch.TIMEOUTS)
def test_a_job_is_sound_whichever_timeout_is_left_out(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatch.TIMEOUTS, left_out, lambda job, now: job)
    crowd = Crowd(40, Range(least=20, most=38, unit=2), seed=random.Random(left_out).randrange(1000))
    for _ in range(8):
        crowd.step(trouble=4)
        assert invariants(crowd.job) == []


async def test_a_tick_that_comes_late_may_fail_too(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "overslept", broken)
    running.clock.jump(5)
    await running.clock.advance(0.25)
    assert running.failed == {"timeouts": 1.0}


async def test_a_client_hears_500_and_may_ask_on_and_the_page_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dispatch.HANDLERS, type(join("node-0")), broken)
    async with serving() as agents:
        for odd in ({}, {"X-Odd": "1"}):
            for request, status in ((join("node-0"), 500), (watch("node-0"), 200)):
                body = msgspec.json.encode(request)
                async with agents.post(request.PATH, body, **odd) as response:
                    assert (response.status, "problem" in response.content_type) == (status, False)
        _, page = await agents.get("/metrics")
    assert 'elasticjob_failed_passes_total{job="digits",loop="requests"} 2.0' in page
    await until(lambda: len(agents.master._watching) == 0)
