"""Leader election: a thread that keeps a Lease (lease.py) for this process, and its fence (fence.py) up.

    Operator(client, election=Election("my-operator"))

Guarantees
- The thread has an event loop, connections and credentials' locks of its own: a main loop that is busy for
  seconds, or a client whose requests are all stuck, does not lose the lease.
- A request for the Lease never lasts longer than half of the renew deadline, nor beyond the deadline.
- A main loop that does not beat for a renew deadline cannot be trusted to stop: the process is ended.
- Lost: the fence has fallen and its connections are reset *before* the loss is announced. The Operator then
  raises LeadershipLost; a process that has not done so by the time the lease ends is ended.
- Ended in order: the Lease is released once every write was answered, so that a standby takes it at once.
  An unanswered write may still be in flight: the lease is left to expire.
- Time is counted by a clock that goes on while the machine is suspended; the one on the wall may step.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import threading
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.fence import Fence
from elasticjob.kube.client.recorder import Occurrence, Series, event_manifest, reference
from elasticjob.kube.clock import BootClock, Clock, deadline
from elasticjob.kube.election.lease import Candidate, Look, Lost, Terms, Wait, Write
from elasticjob.kube.errors import Conflict, KubeError, LeadershipLost
from elasticjob.kube.http.probes import Fine
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.owner import Owner, owned_by
from elasticjob.kube.objects.views import EVENT, LEASE, Lease

__all__ = ["Election", "Keeper", "Terms"]

REASON: Final = "LeaderElection"
RELEASE_ATTEMPTS: Final = 3

log = logging.getLogger(__name__)


class Election:
    """Makes an Operator one of several, of which one at a time runs its controllers. For one `run` only.

    `name` and `namespace` are the Lease's ("": the namespace of the client's config); the account needs get,
    create and patch on it, and create on events there. `identity` stands in the Lease and must never be that
    of another process; by default it is the host's name and a random part. A Lease that it creates is deleted
    with `owner`. `exit` ends the process.
    """

    def __init__(
        self,
        name: str,
        namespace: str = "",
        *,
        identity: str = "",
        owner: Owner | None = None,
        terms: Terms | None = None,
        clock: Clock | None = None,
        exit: Callable[[int], object] = os._exit,
    ) -> None:
        self.name = name
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self.terms = terms or Terms()
        self._namespace = namespace
        self._owner = owner
        self._clock = clock or BootClock()
        self._exit = exit
        self.fence = Fence(self._clock.monotonic, self.terms.margin)
        """The fence before a leader's writes; other kinds of writers may ask `left()`."""
        self._keeper: Keeper | None = None
        self._thread: threading.Thread | None = None
        self._beat = 0.0
        self._release = False
        self._won, self._ended, self._told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def start(self, config: Config, metrics: Metrics, lost: Callable[[LeadershipLost], object]) -> None:
        """Begin to stand for election, in a thread; `lost` is called in the running loop, at most once."""
        metrics.leader.labels(name=self.name).set(0)
        metrics.leader_slow_path.labels(name=self.name)
        self._main = asyncio.get_running_loop()
        self._lost = lost
        self._beat = self._clock.monotonic()
        self._heart = asyncio.create_task(self._live(), name="election: heart")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(config, metrics), name="election", daemon=True
        )
        self._thread.start()

    async def won(self) -> None:
        """Return once this process leads."""
        await self._won.wait()

    async def end(self, *, release: bool) -> None:
        """Stop the election. With `release`, clear the holder so that a standby takes over at once, unless an
        unanswered write may still be in flight."""
        if self._thread is None:
            return
        self.fence.fall("this process stops")  # so that nothing begins after the look at what has
        settled = self.fence.is_quiet(self._clock.monotonic() - self.terms.lease.total_seconds())
        if release and self._won.is_set() and not settled:
            log.warning("a write was not answered: the lease is left to expire", extra={"lease": self.name})
        self._release = release and settled
        with suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._told.set)
        with suppress(TimeoutError):  # it is a daemon: whatever holds it up ends with the process
            await asyncio.wait_for(self._ended.wait(), self.terms.renew.total_seconds())
        self._heart.cancel()
        await asyncio.wait({self._heart})

    def standing(self) -> Fine:
        """The current leader, for /readyz: a standby is ready too."""
        if self._won.is_set():
            return Fine("this process leads")
        if self._keeper and self._keeper.problem:
            return Fine(f"standby, and cannot lead: {self._keeper.problem}")
        holder = self._keeper.candidate.holder if self._keeper else ""
        return Fine(f"standby, {holder} leads" if holder else "standby, no leader yet")

    async def _live(self) -> None:
        """The main loop's heart."""
        pause = min(1.0, self.terms.renew.total_seconds() / 10)
        while True:
            self._beat = self._clock.monotonic()
            await asyncio.sleep(pause)

    # in the thread

    def _run(self, config: Config, metrics: Metrics) -> None:
        """The thread: whatever goes wrong in it, the fence falls and the operator hears of it."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._stand(config, metrics))
        except Exception as error:  # the last place that could tell of it
            log.exception("the election has failed", extra={"lease": self.name})
            self._report(f"the election has failed: {error!r}")
        finally:
            metrics.leader.labels(name=self.name).set(0)
            self._tell(self._ended.set)

    async def _stand(self, config: Config, metrics: Metrics) -> None:
        half = self.terms.renew.total_seconds() / 2
        async with Client(
            config, clock=self._clock, metrics=metrics, user_agent=f"{self.name}-election", timeout=half
        ) as client:
            keeper = self._keeper = Keeper(
                client,
                Key(self._namespace or config.namespace, self.name),
                Candidate(self.identity, self.terms),
                self.fence,
                clock=self._clock,
                metrics=metrics,
                owner=self._owner,
                won=lambda: self._tell(self._won.set),
            )
            keeping = asyncio.create_task(keeper.run(), name="election: keep")
            heart = asyncio.create_task(self._listen(keeper), name="election: listen")
            stopped = asyncio.create_task(self._told.wait(), name="election: told to end")
            await asyncio.wait({keeping, stopped}, return_when=asyncio.FIRST_COMPLETED)
            lost = keeping.done()
            for task in (heart, keeping):
                task.cancel()
            await asyncio.wait({heart, keeping})
            if lost:
                broken = keeping.exception()
                self._report(f"its thread has failed: {broken!r}" if broken else keeping.result())
                await self._insist(stopped, keeper)
            elif self._release:
                await keeper.release()
            await keeper.close()

    async def _listen(self, keeper: Keeper) -> None:
        """End the process when its main loop has not beaten for a renew deadline while it leads."""
        limit = self.terms.renew.total_seconds()
        while True:
            await asyncio.sleep(limit / 20)
            silent = self._clock.monotonic() - self._beat
            if keeper.candidate.leads and silent > limit:
                return self._die(f"the main loop has not moved for {silent:.1f} s")

    async def _insist(self, stopped: asyncio.Task[bool], keeper: Keeper) -> None:
        """End the process unless it ends by itself before another may lead."""
        leave = keeper.candidate.deadline + self.terms.margin.total_seconds()
        patience = max(self.terms.retry.total_seconds(), leave - self._clock.monotonic())
        done, _ = await asyncio.wait({stopped}, timeout=patience)
        if not done:
            self._die("the lease is lost, and the process has not stopped")

    def _report(self, why: str) -> None:
        self.fence.fall(why)
        error = LeadershipLost(f"{self.identity} does not lead any more: {why}")
        self._tell(lambda: self._lost(error))

    def _die(self, why: str) -> None:
        self.fence.fall(why)
        log.critical("the process is ended", extra={"lease": self.name, "why": why})
        self._exit(1)

    def _tell(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the main loop is closed: there is no caller left to notify
            self._main.call_soon_threadsafe(what)


class Keeper:
    """A candidate at work on its Lease: `run()` until it has lost what it had won."""

    def __init__(
        self,
        client: Client,
        lease: Key,
        candidate: Candidate,
        fence: Fence,
        *,
        clock: Clock,
        metrics: Metrics,
        owner: Owner | None = None,
        won: Callable[[], object] = lambda: None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.candidate = candidate
        self.problem = ""
        """Why the last request failed, if it did."""
        self._client = client
        self._key = lease
        self._fence = fence
        self._clock = clock
        self._owner = owner
        self._won = won
        self._chance = chance
        self._saying: asyncio.Task[None] | None = None
        self._leader = metrics.leader.labels(name=lease.name)
        self._slow_path = metrics.leader_slow_path.labels(name=lease.name)

    async def run(self) -> str:
        """Win, renew, and return why it was lost; the fence has fallen then."""
        while True:
            step = self.candidate.next(self._clock.monotonic(), self._clock.now())
            match step:
                case Wait(seconds):
                    await self._clock.sleep(seconds)
                case Look():
                    await self._attempt(self._look())
                case Write():
                    if won := await self._attempt(self._write(step)):
                        saying = self._say(won, "became leader")
                        self._saying = asyncio.create_task(saying, name="election: say")
                case Lost(why):
                    self._fence.fall(why)
                    self._leader.set(0)
                    log.error("leadership is lost", extra=self._about() | {"why": why})
                    return why

    async def release(self) -> None:
        """Clear the holder if it is still this process; the fence falls first.

        A standby has nothing to give, and does not wait for an API server that is away.
        """
        self._fence.fall("this process stops")
        self._leader.set(0)
        if not self.candidate.leads:
            return
        for _ in range(RELEASE_ATTEMPTS):
            await self._attempt(self._look())
            step = self.candidate.release(self._clock.now())
            if step is None:
                return
            lease = await self._attempt(self._send(step))
            if lease is not None:
                log.info("the lease is released", extra=self._about())
                if self._saying:  # first things first: it was given a time of its own
                    await asyncio.wait({self._saying})
                await self._say(lease, "stopped leading")
                return

    async def close(self) -> None:
        """Say nothing more: what has not been said by now is not waited for."""
        if self._saying:
            self._saying.cancel()
            await asyncio.wait({self._saying})

    async def _look(self) -> None:
        if self.candidate.leads:
            self._slow_path.inc()
        lease = await self._client.find(LEASE, self._key.name, self._key.namespace)
        before = self.candidate
        self.candidate = before.after_read(lease, self._clock.monotonic(), self._chance())
        if self.candidate.holder != before.holder:
            log.info("the lease is held", extra=self._about() | {"holder": self.candidate.holder})

    async def _write(self, step: Write) -> Lease | None:
        """The Lease, if it was won by this write."""
        began, led = self._clock.monotonic(), self.candidate.leads
        lease = await self._send(step)
        self.candidate = self.candidate.wrote(lease, began, self._clock.monotonic())
        self._fence.move(self.candidate.deadline)
        if led or not self.candidate.leads:
            return None
        self._leader.set(1)
        log.info("this process leads", extra=self._about())
        self._won()
        return lease

    async def _send(self, step: Write) -> Lease:
        """The Lease as written. A patch, which leaves what others have put into the Lease as it is."""
        namespace, name = self._key
        if not step.version:
            metadata = {"name": name, "namespace": namespace, **await owned_by(self._owner, self._client)}
            return await self._client.create(LEASE, {"metadata": metadata, "spec": step.spec})
        patch = {"metadata": {"resourceVersion": step.version}, "spec": step.spec}
        return await self._client.merge_patch(LEASE, name, patch, namespace)

    async def _attempt(self, request: Coroutine[Any, Any, Lease | None]) -> Lease | None:
        """The response of the request, within its time; None if it failed, which the candidate then knows."""
        try:
            async with deadline(self._clock, self._patience()):
                answer = await request
        except (KubeError, TimeoutError) as error:
            now, conflict = self._clock.monotonic(), isinstance(error, Conflict)
            self.candidate = self.candidate.after_failure(now, self._chance(), conflict=conflict)
            if not conflict:
                self._complain(str(error) or "no answer in time")
            return None
        self.problem = ""
        return answer

    def _complain(self, problem: str) -> None:
        before, self.problem = self.problem, problem
        if not before:
            log.warning("the lease cannot be kept", extra=self._about() | {"error": problem})

    def _patience(self) -> float:
        """Half of a renew deadline, so that a connection that is dead leaves time for another."""
        half = self.candidate.terms.renew.total_seconds() / 2
        left = self.candidate.deadline - self._clock.monotonic()
        return max(0.0, min(half, left)) if self.candidate.leads else half

    async def _say(self, lease: Lease, what: str) -> None:
        """Record an Event about the Lease, in the time of one request; nothing waits for it but the end."""
        now = self._clock.now()
        occurrence = Occurrence(reference(LEASE, lease), "Normal", REASON, f"{self.candidate.me} {what}", now)
        series = Series(f"{self._key.name}.{secrets.token_hex(8)}", self._key.namespace, 1, now, now)
        manifest = event_manifest(occurrence, series, self._key.name, self.candidate.me)
        try:
            await self._client.create(EVENT, manifest)
        except KubeError as error:
            log.warning("an event was not recorded", extra={"reason": REASON, "error": str(error)})

    def _about(self) -> dict[str, object]:
        return {"lease": str(self._key), "identity": self.candidate.me}
