"""Two operators as processes, each behind a network of its own: the writes of the two never overlap.

What is proven is read from the server's audit log: when each write came in and when it was answered.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.election.election import Election
from elasticjob.kube.errors import Fenced
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, LEASE, Lease
from elasticjob.kube.testing import FaultProxy, asking
from hack.cluster.audit import Audited
from tests.kit.clusters.served import Served
from tests.kit.traps.operators import for_maps, operator_of, running
from tests.kit.traps.pace import BRISK, FAST, SLOW, USUAL, Pace
from tests.kit.traps.replica import LEASE_NAME, TERMS, WORK
from tests.kit.waiting import until

PIECES = 3
ENOUGH = 10
"""Writes after which somebody is at work for sure."""
WITHIN = 100.0
"""Seconds; a test that passes waits for a few of them, unless the machine is very busy."""
FLIGHT = TERMS.renew.total_seconds() - 2
"""Seconds after the last renewal in which nobody has to notice anything, however fast they pass."""
pytestmark = pytest.mark.timeout(300)


@dataclass
class Replica:
    """One of the operators."""

    name: str
    proxy: FaultProxy
    process: asyncio.subprocess.Process
    log: Path

    async def says(self, word: str) -> None:
        """Wait for its next line."""
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), WITHIN)).decode().strip()
        assert line == word, f"{self.name} said {line!r}: {self.log.read_text()[-2000:]}"

    async def ends(self) -> int:
        return await asyncio.wait_for(self.process.wait(), WITHIN)


@dataclass
class Two:
    """A leads, B stands by."""

    served: Served
    client: Client
    namespace: str
    a: Replica
    b: Replica
    pace: Pace
    """Time nearly stands still, unless it is asked for."""

    async def b_leads(self) -> None:
        """Let time fly until B leads; not so fast where A has to stop in time, and B to renew."""
        leading = asyncio.create_task(self.b.says("leading"))
        self.pace.go(FAST)
        await asyncio.wait({leading}, timeout=FLIGHT / FAST)
        self.pace.go(BRISK)
        await leading
        self.pace.go(SLOW)

    def writes(self, replica: Replica | None = None) -> list[Audited]:
        """The writes of controllers that were done, in the order in which they came."""
        agents = {replica.name} if replica else {self.a.name, self.b.name}
        found = [w for w in self.served.writes() if w.agent in agents and w.resource == "configmaps"]
        return sorted((write for write in found if write.code < 300), key=lambda write: write.began)

    async def work(self, replica: Replica, writes: int = ENOUGH) -> None:
        """Wait until a replica has written that often from now on."""
        wanted = await self._written(replica) + writes

        async def done() -> bool:
            return await self._written(replica) >= wanted

        await until(done, f"{replica.name} writes", WITHIN)

    async def _written(self, replica: Replica) -> int:
        """How often it has written, by what it wrote: it counts."""
        pieces = await self.client.list(CONFIG_MAP, self.namespace)
        return max(int(piece.data.get(replica.name, 0)) for piece in pieces)

    async def lease(self) -> Lease:
        return await self.client.get(LEASE, LEASE_NAME, self.namespace)

    async def renewals(self, count: int) -> None:
        """Wait until the leader has renewed its lease that often; the standby has looked at it meanwhile."""
        self.pace.go(BRISK)
        for _ in range(count):
            before = await self.lease()

            async def renewed(before: Lease = before) -> bool:
                return (await self.lease()).spec.renew_time != before.spec.renew_time

            await until(renewed, "the lease is renewed", WITHIN)
        self.pace.go(SLOW)

    def turns(self) -> list[str]:
        """Who wrote, in turns; fails where one begins before the last write of the one before has ended."""
        turns = [(name, list(group)) for name, group in itertools.groupby(self.writes(), lambda w: w.agent)]
        for (_, before), (_, after) in itertools.pairwise(turns):
            assert max(write.ended for write in before) < after[0].began
        return [name for name, _ in turns]


@pytest.fixture
async def two(served: Served, client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Two]:
    """A leads and works, B stands by."""
    for number in range(PIECES):
        metadata = {"name": f"{WORK}-{number}", "namespace": namespace}
        await client.create(CONFIG_MAP, {"metadata": metadata})
    pace = Pace(tmp_path / "pace")
    pace.go(USUAL)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(replica("a", served, namespace, tmp_path))
        await a.says("started")
        await a.says("leading")
        b = await stack.enter_async_context(replica("b", served, namespace, tmp_path))
        await b.says("started")
        pace.go(SLOW)
        found = Two(served, client, namespace, a, b, pace)
        await found.work(a)
        yield found


@asynccontextmanager
async def replica(name: str, served: Served, namespace: str, folder: Path) -> AsyncIterator[Replica]:
    log = folder / f"{name}.log"
    async with FaultProxy(served.config()) as proxy:
        kubeconfig = proxy.write_kubeconfig(folder / f"{name}.kubeconfig")
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.kit.traps.replica", str(kubeconfig), namespace, name),
                str(folder / "pace"),
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.getcwd()},
            )
        try:
            yield Replica(name, proxy, process, log)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def test_15_a_leader_that_is_cut_off_stops_before_another_begins(two: Two) -> None:
    """Half-open. Nothing arrives any more and nobody says so; later all that is under way arrives."""
    two.a.proxy.partition()
    await two.b_leads()
    await two.work(two.b)
    assert await two.a.ends() == 1
    two.a.proxy.heal(deliver=True)
    await two.work(two.b)
    assert two.turns() == ["a", "b"]
    assert "could not be renewed" in two.a.log.read_text()
    assert (await two.lease()).spec.lease_transitions == 1


async def test_15_a_leader_whose_writes_arrive_late_has_given_them_up(two: Two) -> None:
    """The network heals the moment another leads, with a leader that has not been told to end."""
    two.a.proxy.partition()

    async def held() -> int:
        return two.a.proxy.held

    await until(held, "something of a is under way", WITHIN)
    await two.b_leads()
    two.a.proxy.heal(deliver=True)
    await two.work(two.b)
    assert await two.a.ends() == 1
    assert two.turns() == ["a", "b"]


async def test_15_behind_a_fence_that_fell_nothing_is_sent(
    served: Served, client: Client, namespace: str
) -> None:
    """And runs that come too late fail with Fenced; one write may be in flight when the fence falls."""
    fenced, begun = asyncio.Event(), []
    await client.create(CONFIG_MAP, {"metadata": {"name": WORK, "namespace": namespace}})
    async with FaultProxy(served.config()) as proxy, Client(proxy.config) as mine:

        async def write(key: Key) -> None:
            begun.append(key)
            try:
                await mine.merge_patch(CONFIG_MAP, WORK, {"data": {"by": "a"}}, namespace)
                raise RuntimeError("again")
            except Fenced:
                fenced.set()
                raise

        election = Election(LEASE_NAME, namespace, terms=TERMS)
        async with running(operator_of(mine, namespace, for_maps(write), election=election)) as operator:
            await operator.wait_leading()
            await until(lambda: _seen(proxy), "it writes", WITHIN)
            election.fence.fall("the test says so")
            in_time = len(begun)
            await asyncio.wait_for(fenced.wait(), WITHIN)
            assert await _seen(proxy) <= in_time


async def _seen(proxy: FaultProxy) -> int:
    return len(proxy.asked(asking("patch", "configmaps")))


@pytest.mark.parametrize("steps", [1, 2])
async def test_16_a_clock_that_steps_changes_nothing(two: Two, steps: int) -> None:
    """An hour forward, and two back, in the leader and in the standby."""
    for _ in range(steps):
        for each in (two.a, two.b):
            each.process.send_signal(signal.SIGUSR2)
        await two.renewals(10)
    await two.work(two.a)
    assert two.turns() == ["a"]
    assert (await two.lease()).spec.lease_transitions == 0


@pytest.mark.long
async def test_17_a_leader_whose_main_loop_is_blocked_goes(two: Two) -> None:
    """Its thread renews, until it finds that nothing moves; the process ends without being asked."""
    two.a.process.send_signal(signal.SIGUSR1)
    two.pace.go(FAST)
    assert await two.a.ends() == 1
    await two.b_leads()
    await two.work(two.b)
    assert two.turns() == ["a", "b"]
    assert "the main loop has not moved" in two.a.log.read_text()


async def test_15_a_leader_that_slept_writes_nothing_after_it_wakes(two: Two) -> None:
    """Stopped for longer than the lease, with writes at every stage of their way."""
    two.a.process.send_signal(signal.SIGSTOP)
    await two.b_leads()
    await two.work(two.b)
    two.a.process.send_signal(signal.SIGCONT)
    assert await two.a.ends() == 1
    await two.work(two.b)
    assert two.turns() == ["a", "b"]


async def test_25_a_leader_that_is_told_to_stop_hands_the_lease_over_when_its_writes_are_done(
    two: Two,
) -> None:
    """And the standby does not wait for it to expire."""
    two.a.process.send_signal(signal.SIGTERM)
    assert await two.a.ends() == 0
    two.pace.go(BRISK)
    await two.b.says("leading")
    two.pace.go(SLOW)
    await two.work(two.b)
    assert two.turns() == ["a", "b"]

    async def said() -> list[str]:
        events = await two.client.list(EVENT, two.namespace)
        return sorted(event.message for event in events if event.reason == "LeaderElection")

    async def all_is_said() -> bool:
        return "b became leader" in await said()

    await until(all_is_said, "b has said that it leads", WITHIN)
    assert await said() == ["a became leader", "a stopped leading", "b became leader"]


async def test_15_a_standby_that_ends_leaves_the_leader_alone(two: Two) -> None:
    two.b.process.send_signal(signal.SIGTERM)
    assert await two.b.ends() == 0
    await two.work(two.a)
    assert two.turns() == ["a"]
    assert (await two.lease()).spec.holder_identity == "a"
