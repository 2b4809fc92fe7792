"""A process that runs controllers: one client, one cache per kind, everything started and stopped in order.

    async with Client(config) as client:
        operator = Operator(client, probes="127.0.0.1:8081")
        jobs = operator.cache(ELASTICJOB)
        operator.add(Controller("elasticjob", reconcile, for_=ELASTICJOB, owns=(POD,)))
        await operator.run()

Start: http (probes, metrics, events) → webhooks → caches, until they are in step → others → controllers.
Stop: others → controllers → caches → webhooks → http.
Webhooks come before controllers and end after them, because a controller's own writes pass our webhooks; its
last writes can still be told as Events.

Several replicas, one of which leads: `Operator(client, election=Election("my-operator"))`
- Controllers, the last group, start when the lease is won; all others start at once, so that a standby is
  ready, serves webhooks and has its caches warm.
- Every write of the controllers, with whichever client, passes the election's fence: none is sent, or kept
  trying, when another may lead. Not fenced is what each replica does for itself, or may do twice: the
  webhooks' registration and authority (applied, the same from all), Events (they testify what was done),
  whatever runs in OTHERS.
- Lost: `run` cancels everything and raises LeadershipLost, and the process is to end. Stopped: the lease is
  released, last of all.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import IDLE, IDLE_OF_MANY, Informer
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.fence import behind
from elasticjob.kube.client.recorder import Recorder, reference_to
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.controller import Controller, Runner
from elasticjob.kube.election.election import Election
from elasticjob.kube.errors import LeadershipLost
from elasticjob.kube.http.probes import Check, Fine, LoopWatch, Probes
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.operator.rungroup import STOP_ORDER, Group, RunGroup, Runnable

__all__ = ["GRACE", "Group", "Operator"]

T = TypeVar("T")

MARGIN = 15.0
"""Seconds beyond the longest pause of a watch after which `/readyz` names its kind."""
GRACE = 30.0
"""Seconds that runs in flight have to finish when the process is asked to stop."""

log = logging.getLogger(__name__)


class Operator:
    """See the module. Nothing happens until `run`; what comes after that raises RuntimeError."""

    def __init__(
        self,
        client: Client,
        namespace: str = "",
        *,
        name: str = "operator",
        probes: str | None = "127.0.0.1:8081",
        metrics: Metrics | CollectorRegistry | None = None,
        clock: Clock | None = None,
        grace: float = GRACE,
        signals: bool = True,
        election: Election | None = None,
        one_of_many: bool = False,
    ) -> None:
        """`namespace` limits all caches ("": the whole cluster). Without `election`, it leads from the start.

        `probes` is host:port, None for no server. Without `signals`, SIGTERM and SIGINT are left to others,
        as befits an operator that is a guest in a larger process. `one_of_many`: see Informer.
        """
        self.client = client
        self.namespace = namespace
        self.clock: Clock = clock or client.clock
        self.metrics = metrics if isinstance(metrics, Metrics) else Metrics(metrics)
        client.measure(self.metrics)
        self.recorder = Recorder(client, name, clock=self.clock, metrics=self.metrics)
        self.election = election
        self._name = name
        self._one_of_many = one_of_many
        self._grace = grace
        self._follows = (signal.SIGTERM, signal.SIGINT) if signals else ()
        self._began = False
        self._stopping = asyncio.Event()
        self._error: BaseException | None = None
        self._started, self._leading = asyncio.Event(), asyncio.Event()
        self._groups = {group: RunGroup(group.name.lower(), self._fail) for group in Group}
        self._caches: dict[str, Cache[Any]] = {}
        self._informers: list[Informer[Any]] = []
        self._ready: dict[str, Check] = {
            "started": lambda: None if self._started.is_set() else "not all parts have started",
            "caches": self._stale,
        }
        if election:
            self._ready["leader"] = election.standing
        self._probes = Probes(probes, self.metrics.registry, self._ready) if probes else None
        self._groups[Group.HTTP].members += [self.recorder, LoopWatch(self.clock, self.metrics)]
        self._groups[Group.HTTP].members += [self._probes] if self._probes else []

    @property
    def url(self) -> str:
        """Where probes and metrics are served, once started; "" without them."""
        return self._probes.url if self._probes else ""

    def cache(self, kind: Kind[T], *, labels: str = "", fields: str = "", optional: bool = False) -> Cache[T]:
        """The one cache of a kind, made at the first call.

        `optional`: a kind that the server may not have, now or later; its cache is empty then.
        Raises ValueError when a later call wants other selectors or another model.
        """
        found = self._caches.get(kind.resource)
        if found is None:
            found = self._new_cache(kind, labels, fields, optional)
        elif (labels or fields) and (labels, fields) != (found.labels, found.fields):
            raise ValueError(
                f"{kind.name} is cached already, with the selectors {found.labels!r} {found.fields!r}"
            )
        elif kind.model is not found.kind.model:
            raise ValueError(f"{kind.name} is cached already, as {found.kind.model.__name__}")
        return cast(Cache[T], found)

    def add(self, part: Controller | Runnable, group: Group | None = None) -> None:
        """Have a controller, a webhook server or anything with `async def run(self)` run with the rest.

        The group is the part's own `group` attribute unless given, else `OTHERS`.
        """
        if isinstance(part, Controller):
            part = self._runner(part)
            group = Group.CONTROLLERS
        self._expect_not_begun(type(part).__name__)
        chosen = group if group is not None else getattr(part, "group", Group.OTHERS)
        self._groups[Group(chosen)].members.append(part)
        if callable(check := getattr(part, "ready", None)):
            self.ready_when(self._unused(type(part).__name__), check)

    def ready_when(self, name: str, check: Check) -> None:
        """Let /readyz fail, with the sentence that `check` returns, while it returns one."""
        self._ready[name] = check

    def stop(self) -> None:
        """Have `run` stop everything in order and return."""
        self._stopping.set()

    async def wait_started(self) -> None:
        """Return once all that a standby runs is started, and all caches are in step.

        Raises RuntimeError when the operator stops before.
        """
        await self._wait_until(self._started, "all of its parts had started")

    async def wait_leading(self) -> None:
        """Return once the controllers are started too. Raises RuntimeError when the operator stops before."""
        await self._wait_until(self._leading, "its controllers had started")

    async def run(self) -> None:
        """Run until cancelled, stopped, or told to by SIGTERM or SIGINT.

        Raises the first error of a part, after the others have been stopped in order. Raises LeadershipLost
        after everything was cancelled at once; nothing may be written by this process then.
        """
        self._began = True
        with self._signals():
            starting = asyncio.create_task(self._start(), name=f"{self._name}: start")
            starting.add_done_callback(self._on_start)
            try:
                await self._stopping.wait()
            finally:
                starting.cancel()
                await asyncio.wait({starting})
                self._started.clear()
                self._leading.clear()
                await self._stop()
        if self._error:
            raise self._error

    async def _start(self) -> None:
        for group in Group:
            if self._stopping.is_set():
                return
            if group is Group.CONTROLLERS:
                self._started.set()
                log.info("started", extra={"operator": self._name, "kinds": sorted(self._caches)})
                await self._win()
                if self._stopping.is_set():  # lost as soon as won
                    return
            with behind(self.election.fence if self.election and group is Group.CONTROLLERS else None):
                await self._groups[group].start()
        self._leading.set()

    async def _win(self) -> None:
        """Return when controllers may start. A replica that could not lead at once is no candidate."""
        if self.election:
            self.election.start(self.client.config, self.metrics, self._lose)
            await self.election.won()

    def _on_start(self, starting: asyncio.Task[None]) -> None:
        if not starting.cancelled() and (error := starting.exception()):
            self._fail(error)

    async def _stop(self) -> None:
        """Stop group by group; the grace period is that of the process, so they share it.

        The lease comes last, when nothing can write any more.
        """
        log.info("stopping", extra={"operator": self._name})
        until = self.clock.monotonic() + self._grace
        for group in STOP_ORDER:
            await self._groups[group].stop(self.clock, max(0.0, until - self.clock.monotonic()))
        if self.election:
            await self.election.end(release=not isinstance(self._error, LeadershipLost))

    def _lose(self, error: LeadershipLost) -> None:
        """End at once: what is still running is cancelled, also what was finishing its work."""
        self._error = error
        for group in self._groups.values():
            group.cancel()
        self._stopping.set()

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            log.error("a part has failed", extra={"operator": self._name}, exc_info=error)
        self._stopping.set()

    async def _wait_until(self, wanted: asyncio.Event, what: str) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (wanted, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        if not wanted.is_set():
            raise RuntimeError(f"{self._name} stopped before {what}")

    def _stale(self) -> Fine | None:
        """Which kinds the server says nothing of; webhooks serve even so."""
        ages = {each.kind.plural: self.clock.monotonic() - each.last_heard for each in self._informers}
        usual = IDLE_OF_MANY if self._one_of_many else IDLE
        old = [f"{kind} for {age:.0f} s" for kind, age in sorted(ages.items()) if age > usual + MARGIN]
        return Fine(f"nothing was heard of {', '.join(old)}") if old else None

    def _unused(self, name: str) -> str:
        """A name that no check has: the second of its type is called `name 2`."""
        count = sum(known.partition(" ")[0] == name for known in self._ready)
        return f"{name} {count + 1}" if count else name

    def _expect_not_begun(self, what: str) -> None:
        """Refuse what would never be started."""
        if self._began:
            raise RuntimeError(f"{what} comes too late: add everything to {self._name} before run()")

    def _new_cache(self, kind: Kind[T], labels: str, fields: str, optional: bool) -> Cache[T]:
        self._expect_not_begun(f"the cache of {kind.name}")
        namespace = self.namespace if kind.namespaced else ""
        cache = self._caches[kind.resource] = Cache(kind, namespace, labels, fields, optional=optional)
        informer = Informer(
            self.client, cache, clock=self.clock, metrics=self.metrics, one_of_many=self._one_of_many
        )
        self._informers.append(informer)
        age = self.metrics.cache_age.labels(kind=kind.name)
        age.set_function(lambda: self.clock.monotonic() - informer.last_heard)
        self._groups[Group.CACHES].members.append(informer)
        return cache

    def _runner(self, controller: Controller) -> Runner:
        for kind in controller.kinds:
            self.cache(kind)
        return Runner(
            controller,
            self._caches,
            clock=self.clock,
            metrics=self.metrics,
            warn=self._warn,
        )

    def _warn(self, kind: Kind[Any], item: Item, reason: str, note: str) -> None:
        self.recorder.event(reference_to(kind, item.meta), "Warning", reason, note)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        chosen = []
        for number in self._follows:
            try:
                loop.add_signal_handler(number, self.stop)
            except (ValueError, RuntimeError):  # not the main thread, where alone signals can be handled
                continue
            chosen.append(number)
        try:
            yield
        finally:
            for number in chosen:
                loop.remove_signal_handler(number)
