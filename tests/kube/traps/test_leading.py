"""Two operators as processes, each behind a network of its own: the writes of the two never overlap.

What is proven is read from the server's audit log: when each write came in and when it was answered.
The processes are forks of one that has imported what they need.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, LEASE, Lease
from elasticjob.kube.testing import FaultProxy
from elasticjob.trainer.agent.processes import warm
from lab.clusters.plane.audit import Audited
from lab.clusters.served import Served
from lab.jobs.training.warm import Process, Warm
from lab.troubles.pace import BRISK, FAST, SLOW, USUAL, Pace
from lab.waiting import PATIENCE, until
from tests.kit.traps.replica import LEASE_NAME, TERMS, WORK

PIECES = 3
ENOUGH = 10
"""Writes after which somebody is at work for sure."""
FLIGHT = TERMS.renew.total_seconds() - 2
"""Seconds after the last renewal in which nobody has to notice anything, however fast they pass."""

pytestmark = pytest.mark.story
MODULES = ("elasticjob.kube.operator.operator", "elasticjob.kube.election.election", "lab.troubles.pace")


@dataclass
class Replica:
    """One of the operators."""

    name: str
    proxy: FaultProxy
    process: Process
    said: list[str] = field(default_factory=list)
    """The lines of its output so far, its log among them."""

    async def says(self, word: str) -> None:
        """Wait for this line."""
        async with asyncio.timeout(PATIENCE):
            while line := (await self.process.stdout.readline()).decode():
                self.said.append(line.strip())
                if self.said[-1] == word:
                    return
        raise AssertionError(f"{self.name} ended without {word!r}: {self.said[-20:]}")

    def told(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    async def ends(self) -> tuple[int, str]:
        """Its exit code, and all that it has said."""
        async with asyncio.timeout(PATIENCE):
            rest = (await self.process.stdout.read()).decode()
            return await self.process.wait(), "\n".join([*self.said, rest])


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

        await until(done, f"{replica.name} writes")

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

            await until(renewed, "the lease is renewed")
        self.pace.go(SLOW)

    def turns(self) -> list[str]:
        """Who wrote, in turns; fails where one begins before the last write of the one before has ended."""
        turns = [(name, list(group)) for name, group in itertools.groupby(self.writes(), lambda w: w.agent)]
        for (_, before), (_, after) in itertools.pairwise(turns):
            assert max(write.ended for write in before) < after[0].began
        return [name for name, _ in turns]


@pytest.fixture(scope="module")
def line() -> Iterator[socket.socket]:
    """The line to the process whose forks the replicas are."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = (sys.executable, "-m", warm.__name__, str(os.getpid()), str(theirs.fileno()))
    with theirs:
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
    with ours:
        warm.send(ours, warm.Prepare(MODULES))
        assert warm.decode_news(ours.recv(65536)) == warm.Warm()
        yield ours
    process.wait()


@pytest.fixture
async def two(
    served: Served, client: Client, namespace: str, line: socket.socket, tmp_path: Path
) -> AsyncIterator[Two]:
    """A leads and works, B stands by."""
    forks = Warm(line)
    for number in range(PIECES):
        metadata = {"name": f"{WORK}-{number}", "namespace": namespace}
        await client.create(CONFIG_MAP, {"metadata": metadata})
    pace = Pace(tmp_path / "pace")
    pace.go(USUAL)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(replica("a", served, namespace, forks, tmp_path))
        await a.says("started")
        await a.says("leading")
        b = await stack.enter_async_context(replica("b", served, namespace, forks, tmp_path))
        await b.says("started")
        pace.go(SLOW)
        found = Two(served, client, namespace, a, b, pace)
        await found.work(a)
        yield found


@asynccontextmanager
async def replica(
    name: str, served: Served, namespace: str, forks: Warm, folder: Path
) -> AsyncIterator[Replica]:
    async with FaultProxy(served.config()) as proxy:
        kubeconfig = proxy.write_kubeconfig(folder / f"{name}.kubeconfig")
        command = ("tests.kit.traps.replica", str(kubeconfig), namespace, name, str(folder / "pace"))
        found = Replica(name, proxy, await forks.run(command, os.environ, module=True))
        try:
            yield found
        finally:
            if found.process.returncode is None:
                found.told(signal.SIGKILL)
            await found.process.wait()


async def test_15_a_leader_that_is_cut_off_stops_before_another_begins(two: Two) -> None:
    """Half-open. Nothing arrives any more and nobody says so; later all that is under way arrives."""
    two.a.proxy.partition()
    await two.b_leads()
    await two.work(two.b)
    code, said = await two.a.ends()
    assert code == 1
    assert "could not be renewed" in said
    two.a.proxy.heal(deliver=True)
    await two.work(two.b)
    assert two.turns() == ["a", "b"]
    assert (await two.lease()).spec.lease_transitions == 1


async def test_15_a_leader_whose_writes_arrive_late_has_given_them_up(two: Two) -> None:
    """The network heals the moment another leads, with a leader that has not been told to end."""
    two.a.proxy.partition()

    await until(lambda: two.a.proxy.held, "something of a is under way")
    await two.b_leads()
    two.a.proxy.heal(deliver=True)
    await two.work(two.b)
    assert (await two.a.ends())[0] == 1
    assert two.turns() == ["a", "b"]


async def test_16_a_clock_that_steps_changes_nothing_and_nor_does_a_standby_that_ends(two: Two) -> None:
    """An hour forward, and two back, in the leader and in the standby."""
    for _ in range(2):
        for each in (two.a, two.b):
            each.told(signal.SIGUSR2)
        await two.renewals(4)
    two.b.told(signal.SIGTERM)
    assert (await two.b.ends())[0] == 0
    await two.work(two.a)
    assert two.turns() == ["a"]
    lease = (await two.lease()).spec
    assert (lease.holder_identity, lease.lease_transitions) == ("a", 0)


async def test_17_a_leader_whose_main_loop_is_blocked_goes(two: Two) -> None:
    """Its thread renews, until it finds that nothing moves; the process ends without being asked."""
    two.a.told(signal.SIGUSR1)
    two.pace.go(BRISK)  # not FAST: its thread has to renew meanwhile
    code, said = await two.a.ends()
    assert code == 1
    assert "the main loop has not moved" in said
    await two.b_leads()
    await two.work(two.b)
    assert two.turns() == ["a", "b"]


async def test_15_a_leader_that_slept_writes_nothing_after_it_wakes(two: Two) -> None:
    """Stopped for longer than the lease, with writes at every stage of their way."""
    two.a.told(signal.SIGSTOP)
    await two.b_leads()
    await two.work(two.b)
    two.a.told(signal.SIGCONT)
    assert (await two.a.ends())[0] == 1
    await two.work(two.b)
    assert two.turns() == ["a", "b"]


async def test_25_a_leader_that_is_told_to_stop_hands_the_lease_over_when_its_writes_are_done(
    two: Two,
) -> None:
    """And the standby does not wait for it to expire."""
    two.a.told(signal.SIGTERM)
    assert (await two.a.ends())[0] == 0
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

    await until(all_is_said, "b has said that it leads")
    assert await said() == ["a became leader", "a stopped leading", "b became leader"]
