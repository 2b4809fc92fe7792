"""A master in virtual time: the process of a pod from its start to its exit, reached without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec
from prometheus_client.core import Metric

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Watch
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock
from elasticjob.master.cluster.settings import Settings
from elasticjob.master.durable.store import Store
from elasticjob.master.main import exit_code, last_words, live, with_client
from elasticjob.master.progress import goodput
from elasticjob.master.serving.core import Core
from elasticjob.master.serving.http import Watching
from elasticjob.master.serving.pages import JobCollector, Trouble
from elasticjob.master.serving.polls import Poll
from elasticjob.master.state.job import Job
from lab.virtual.server import Verbs

Ended = Callable[[int, str], None]
"""Hears the exit code and the termination message of a process."""
Change = Callable[[Job, Job], object]
"""Hears the state of a master before and after a change."""
LATENCY: Final = 0.001  # seconds


class _Heard(Core):
    """A master whose changes are heard."""

    def __init__(self, job: Job, store: Store, clock: Clock, changed: Change) -> None:
        super().__init__(job, store, clock=clock)
        self._heard = changed

    def told(self) -> Iterable[Metric]:
        """Yield what its page of metrics shows."""
        trouble = Trouble(self._saving.seconds_without_save(), self.failed_passes())
        return JobCollector(goodput.close(self.job, self.now()), trouble).collect()

    def become(self, job: Job) -> None:
        before = self.job
        super().become(job)
        if self.job is not before:
            self._heard(before, self.job)


class Master:
    """One life of a job's master: `start`, then its own end, `stop` (SIGTERM) or `kill` (SIGKILL)."""

    def __init__(
        self,
        verbs: Verbs,
        clock: Clock,
        namespace: str,
        job: str,
        pod: str,
        ended: Ended,
        changed: Change = lambda *_: None,
    ) -> None:
        self._client, self._clock, self._ended, self._changed = cast(Client, verbs), clock, ended, changed
        self._settings = Settings.model_construct(job=job, namespace=namespace, pod=pod)
        self._stopped = asyncio.Event()
        self._waiting: dict[asyncio.Future[Any], tuple[object, Poll]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listens = False
        self.core: _Heard | None = None
        """What it does and knows, or did at its end; None before it has read its job."""

    def start(self) -> None:
        """Begin the process."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(loudly)

    def stop(self) -> None:
        """Ask it to end: its successor continues."""
        self._stopped.set()

    def kill(self, *, silently: bool = False) -> None:
        """End it now: it saves nothing. Agents see their connections cut, unless its machine is gone."""
        if self._task is None or self._task.done():
            return
        if self.core:
            self.core.retired = True
        self._task.cancel()
        self._close(silently=silently)

    def scraped(self) -> Iterable[Metric] | None:
        """Return what Prometheus reads; None where nothing listens."""
        return self.core.told() if self.core and self._listens else None

    async def ask(self, line: object, request: Request[Any]) -> Any:
        """Return the response to a request over a connection. Raises ConnectionError, or what it answers."""
        await asyncio.sleep(LATENCY)
        if self.core is None or not self._listens:
            raise ConnectionRefusedError("connection refused")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(reply: Any) -> None:
            self._waiting.pop(answer, None)
            if not answer.done():
                answer.set_result(reply)

        if isinstance(request, Watch):
            self._watching.heard(line, request)
        if poll := self.core.take(request, tell):
            self._waiting[answer] = line, poll
        try:
            reply = await answer
        except asyncio.CancelledError:
            if self._waiting.pop(answer, None) and poll:
                self.core.hang_up(poll)
            raise
        if isinstance(reply, asyncio.CancelledError):
            raise ConnectionResetError("connection reset")
        if isinstance(reply, Exception):
            raise reply
        return reply

    def cut(self, line: object, *, silently: bool = False) -> None:
        """A connection is closed; the master hears of that unless the other machine is gone."""
        for answer in [each for each, (whose, _) in self._waiting.items() if whose is line]:
            _, poll = self._waiting.pop(answer)
            if self.core and self._listens and not silently:
                self.core.hang_up(poll)
        if self._listens and not silently:
            self._watching.forget(line)

    async def _run(self) -> None:
        place = with_client(self._client, self._settings, self._clock, self._serve)
        try:
            job = await live(place, self._stopped)
        except Exception:
            self._ended(1, "")
            raise
        finally:
            self._close()
        self._ended(exit_code(job), msgspec.json.encode(last_words(job)).decode())

    def _serve(self, job: Job, store: Store) -> _Heard:
        self.core = core = _Heard(job, store, self._clock, self._changed)
        self._watching = Watching(core.doubt)
        self._listens = True
        return core

    def _close(self, *, silently: bool = False) -> None:
        self._listens = False
        waiting, self._waiting = self._waiting, {}
        for answer in () if silently else waiting:
            if not answer.done():
                answer.set_result(ConnectionResetError("connection reset"))


def loudly(task: asyncio.Task[None]) -> None:
    """Raise what a program raised, so that it ends the run."""
    if not task.cancelled():
        task.result()
