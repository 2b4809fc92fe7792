"""Leading, standing by, losing and handing over, within one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.fence import Fence
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.election.election import Election, Keeper
from elasticjob.kube.election.lease import Candidate, Terms
from elasticjob.kube.errors import Fenced, KubeError, LeadershipLost
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, LEASE
from elasticjob.kube.operator.operator import Operator
from elasticjob.kube.operator.rungroup import Group
from elasticjob.kube.testing import Delay, FaultProxy, Lose, asking
from lab.build.objects import status
from lab.clusters.served import Served
from lab.running import beside
from lab.waiting import PATIENCE
from tests.kit.kube.stub import Stub, answer, hang, until

TERMS = Terms(lease=timedelta(seconds=90), renew=timedelta(seconds=60), retry=timedelta(seconds=0.3))
"""A thief is noticed soon, and nothing is lost because the machine is busy."""
SHORT = Terms(lease=timedelta(seconds=8), renew=timedelta(seconds=6), retry=timedelta(seconds=0.3))
LEASE_NAME = "l"


class Exits:
    """Instead of the end of the process."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.called = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self._loop.call_soon_threadsafe(self.called.set)


@asynccontextmanager
async def replica(
    client: Client,
    namespace: str,
    me: str,
    *controllers: Controller,
    terms: Terms = TERMS,
    probes: str | None = None,
    **more: Any,
) -> AsyncIterator[tuple[Operator, asyncio.Task[None], Exits]]:
    """An operator that runs; it is told to stop at the end."""
    exits = Exits()
    election = Election(LEASE_NAME, namespace, identity=me, terms=terms, exit=exits)
    operator = Operator(client, namespace, name=me, probes=probes, signals=False, election=election, **more)
    for controller in controllers:
        operator.add(controller)
    running = asyncio.create_task(operator.run())
    try:
        yield operator, running, exits
    finally:
        operator.stop()
        await asyncio.wait({running})
        if not running.cancelled() and (error := running.exception()):
            assert isinstance(error, LeadershipLost)


def works(act: Callable[[Key], Any]) -> Controller:
    async def reconcile(key: Key) -> Result:
        if key.name == "work":
            await act(key)
        return Result.done()

    return Controller("works", reconcile, for_=CONFIG_MAP)


async def create_work(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAP, {"metadata": {"name": "work", "namespace": namespace}})


def leads(operator: Operator) -> float | None:
    return operator.metrics.registry.get_sample_value("leader_election_master_status", {"name": LEASE_NAME})


async def holder(client: Client, namespace: str) -> str:
    return (await client.get(LEASE, LEASE_NAME, namespace)).spec.holder_identity


async def steal(client: Client, namespace: str) -> None:
    await client.merge_patch(LEASE, LEASE_NAME, {"spec": {"holderIdentity": "thief"}}, namespace)


# an operator of several


async def test_only_the_leader_runs_controllers_and_a_standby_is_ready(
    client: Client, namespace: str
) -> None:
    runs: list[str] = []

    def noting(me: str) -> Controller:
        async def note(_: Key) -> None:
            runs.append(me)

        return works(note)

    await create_work(client, namespace)
    async with replica(client, namespace, "a", noting("a")) as (a, _, _):
        await a.wait_leading()
        async with replica(client, namespace, "b", noting("b"), probes="127.0.0.1:0") as (b, _, _):
            await b.wait_started()
            assert b.cache(CONFIG_MAP).get(Key(namespace, "work")) is not None
            assert b.election is not None
            await until(lambda: b.election and b.election.standing() == "standby, a leads")
            assert (leads(a), leads(b)) == (1, 0)
            async with aiohttp.ClientSession() as session, session.get(b.url + "/readyz") as response:
                ready = "[+] started\n[+] caches\n[+] leader: standby, a leads\nok\n"
                assert (response.status, await response.text()) == (200, ready)
            await until(lambda: runs)
        assert set(runs) == {"a"}
        assert a.election is not None
        assert a.election.standing() == "this process leads"
        assert await holder(client, namespace) == "a"
    assert await holder(client, namespace) == ""
    assert leads(a) == 0


@pytest.mark.parametrize("stops", [False, True], ids=["works", "stops in order"])
async def test_lost_leadership_ends_everything_at_once_and_is_raised(
    client: Client, namespace: str, stops: bool
) -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def hold(_: Key) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    await create_work(client, namespace)
    async with replica(client, namespace, "a", works(hold), grace=3600) as (a, running, exits):
        await begun.wait()
        if stops:
            a.stop()
        await steal(client, namespace)
        why = "a does not lead any more: the lease is held by 'thief' now"
        with pytest.raises(LeadershipLost, match=why):
            await asyncio.wait_for(running, PATIENCE)
        assert ended == ["cancelled"]
        assert leads(a) == 0
        assert exits.codes == []
    assert await holder(client, namespace) == "thief"


async def test_what_is_lost_as_soon_as_it_was_won_starts_nothing(client: Client, namespace: str) -> None:
    """Both are told to the main loop while it was busy."""
    runs = list[str]()

    class Part:
        async def run(self) -> None:
            runs.append("started")

    election = Election(LEASE_NAME, namespace, terms=TERMS)
    operator = Operator(client, namespace, probes=None, signals=False, election=election)
    operator.add(Part(), Group.CONTROLLERS)
    won = election.won

    async def won_and_lost() -> None:
        await won()
        operator._lose(LeadershipLost("lost"))

    election.won = won_and_lost  # type: ignore[method-assign]
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(operator.run(), PATIENCE)
    assert runs == []


async def test_a_process_that_does_not_stop_when_it_has_lost_is_ended(client: Client, namespace: str) -> None:
    class Stubborn:
        async def run(self) -> None:
            while not exits.called.is_set():
                try:
                    await exits.called.wait()
                except asyncio.CancelledError:
                    continue

    async with replica(client, namespace, "a", works(_nothing), terms=SHORT) as (operator, running, exits):
        del running
        stubborn = Stubborn()
        task = asyncio.create_task(stubborn.run())
        operator._groups[Group.OTHERS]._tasks[task] = (
            stubborn  # one that was added before, and does not listen
        )
        await operator.wait_leading()
        await steal(client, namespace)
        await asyncio.wait_for(exits.called.wait(), PATIENCE)
        assert exits.codes == [1]


async def _nothing(_: Key) -> None:
    return


async def test_the_lease_is_left_to_expire_where_a_write_was_not_answered(
    served: Served, client: Client, namespace: str
) -> None:
    tried = asyncio.Event()
    await create_work(client, namespace)
    async with FaultProxy(served.config()) as proxy, Client(proxy.config) as mine:

        async def write(_: Key) -> None:
            try:
                await mine.json_patch(
                    CONFIG_MAP, "work", [{"op": "add", "path": "/data", "value": {"a": "b"}}], namespace
                )
            except KubeError:
                tried.set()
                raise

        proxy.add(asking("patch", "configmaps"), Lose())
        async with replica(client, namespace, "a", works(write)):
            await asyncio.wait_for(tried.wait(), PATIENCE)
        assert await holder(client, namespace) == "a"


async def test_who_stops_as_soon_as_it_leads_still_says_both(
    served: Served, client: Client, namespace: str
) -> None:
    async with FaultProxy(served.config()) as proxy, Client(proxy.config) as mine:
        proxy.add(asking("create", "events"), Delay(0.2), nth={1})
        async with replica(mine, namespace, "a") as (operator, _, _):
            await asyncio.wait_for(operator.wait_leading(), PATIENCE)
        assert proxy.counts["Delay"] == 1
    messages = {event.message for event in await client.list(EVENT, namespace)}
    assert messages == {"a became leader", "a stopped leading"}


async def test_nothing_begins_once_it_is_looked_at_what_was_answered(client: Client, namespace: str) -> None:
    """A task that a run left behind may go on writing to the end."""
    async with replica(client, namespace, "a") as (operator, _, _):
        await operator.wait_leading()
        assert operator.election is not None
        fence, seen = operator.election.fence, list[str]()
        settled = fence.is_quiet

        def look(since: float) -> bool:
            try:
                fence.left()
            except Fenced as error:
                seen.append(str(error))
            return settled(since)

        fence.is_quiet = look  # type: ignore[method-assign]
    assert seen == ["nothing is written any more: this process stops"]


async def test_without_rights_it_stands_by_and_says_why(
    served: Served, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Client(served.config("nobody", ())) as nobody,
        replica(nobody, namespace, "a") as (operator, _, _),
    ):
        await operator.wait_started()
        await until(lambda: "the lease cannot be kept" in caplog.messages)
        (record,) = (found for found in caplog.records if found.message == "the lease cannot be kept")
        assert "forbidden" in str(record.__dict__["error"])
        assert operator.election is not None
        assert "standby, and cannot lead: leases" in operator.election.standing()
        assert leads(operator) == 0


async def test_what_others_put_into_the_lease_stays(client: Client, namespace: str) -> None:
    """And a leader whose lease somebody annotates goes on, by the slow path."""
    async with replica(client, namespace, "a") as (operator, running, _):
        await operator.wait_leading()
        note = {"metadata": {"annotations": {"note": "mine"}}}
        await client.merge_patch(LEASE, LEASE_NAME, note, namespace)

        def slow() -> float | None:
            name = "leader_election_slowpath_total"
            return operator.metrics.registry.get_sample_value(name, {"name": LEASE_NAME})

        await until(slow)
        assert not running.done()
    lease = await client.get(LEASE, LEASE_NAME, namespace)
    assert lease.metadata.annotations == {"note": "mine"}


# the keeper, in virtual time


@asynccontextmanager
async def keeping(stub: Stub) -> AsyncIterator[tuple[Keeper, Fence, VirtualClock, asyncio.Task[str]]]:
    clock = VirtualClock()
    fence = Fence(clock.monotonic, Terms().margin)
    async with stub.client(clock) as client:
        metrics = Metrics(CollectorRegistry())
        key, me = Key("ns", LEASE_NAME), Candidate("me")
        keeper = Keeper(client, key, me, fence, clock=clock, metrics=metrics, chance=lambda: 0.0)
        async with beside(keeper.run()) as (task,):
            yield keeper, fence, clock, task


def stored(version: int) -> Callable[[web.Request], Any]:
    """The Lease as the request would have it."""

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.json_response(lease((await request.json())["spec"], version))

    return respond


def lease(spec: dict[str, Any], version: int = 1) -> dict[str, Any]:
    metadata = {"name": LEASE_NAME, "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


HELD = lease({"holderIdentity": "me", "leaseDurationSeconds": 15})
NOT_FOUND = answer(404, status(404, "NotFound"))
EVENT_MADE = answer(
    201, {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "resourceVersion": "1"}}
)


async def test_a_request_that_hangs_is_given_up_in_time_for_another(stub: Stub) -> None:
    stub.then(NOT_FOUND, stored(1), EVENT_MADE, hang())
    async with keeping(stub) as (keeper, fence, clock, task):
        await until(lambda: len(stub.seen) == 3 and clock.next_due == 2.0)
        await clock.advance(2)
        await until(lambda: len(stub.seen) == 4)
        stub.then(answer(200, HELD), stored(2))
        await clock.advance(4.9)
        assert len(stub.seen) == 4
        await clock.advance(0.2)
        await until(lambda: len(stub.seen) == 6 and keeper.candidate.version == "2")
        assert [seen.method for seen in stub.seen[3:]] == ["PATCH", "GET", "PATCH"]
        assert fence.left() > 9
        assert not task.done()


async def test_a_leader_whose_requests_all_hang_has_lost_at_its_deadline(stub: Stub) -> None:
    stub.then(NOT_FOUND, stored(1), EVENT_MADE)
    async with keeping(stub) as (keeper, _, clock, task):
        await until(lambda: len(stub.seen) == 3 and clock.next_due == 2.0)
        for _ in range(20):
            if clock.monotonic() < 9.5:
                await clock.advance(0.5)
                await asyncio.sleep(0.001)
        assert not task.done()
        assert keeper.candidate.leads
        await clock.advance(0.6)
        await until(task.done)
        assert task.result() == "the lease could not be renewed within 10 s"


async def test_a_standby_that_stops_asks_nothing(stub: Stub) -> None:
    """It would wait for an API server that is away."""
    async with keeping(stub) as (keeper, _, _, task):
        await until(lambda: stub.seen)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.wait_for(keeper.release(), PATIENCE)
        assert len(stub.seen) == 1


async def test_failures_are_said_once(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    refused = answer(403, status(403, "Forbidden", "you may not"))
    stub.then(refused, refused, refused)
    with caplog.at_level(logging.WARNING):
        async with keeping(stub) as (_, _, clock, _):
            for count in (1, 2, 3):
                await until(lambda count=count: len(stub.seen) == count and clock.next_due == 2.0)  # type: ignore[misc]
                await clock.advance(2)
    assert caplog.messages.count("the lease cannot be kept") == 1
