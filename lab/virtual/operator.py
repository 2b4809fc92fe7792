"""The operator's controllers over caches that a server in memory fills, each kind with its own delay."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, cast

import msgspec

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.pods import Server as DIServer
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.elasticjob.master import Provision
from elasticjob.controllers.kueue.queues import Queues
from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, COHORT, FLAVOR, LOCAL_QUEUE, WORKLOAD
from elasticjob.controllers.main import controllers
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.observe import Caches
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Event, Listed, Removed, Restarted, Synced, Upserted
from elasticjob.kube.cache.wire import Item, item_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.controller import Controller, Reconcile, Result, Runner
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD, SERVICE
from elasticjob.kube.operator.rungroup import Runnable
from lab.build.caches import Nobody
from lab.virtual.admission import decoded
from lab.virtual.server import Verbs

KINDS: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, POD, SERVICE, NODE)
KUEUES: Final[tuple[Kind[Any], ...]] = (WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, FLAVOR, COHORT)
Stays = Callable[[], Awaitable[bool]]
"""Whether the server itself has the definition of Workloads."""
USUAL: Final = (0.001, 0.005, 0.02, 0.1)
"""Seconds after which a watch tells of a change."""


class Unread:
    """Metrics that no test reads, and all of their series: to make and count them takes a tenth of a run."""

    def __getattr__(self, name: str) -> Any:
        setattr(self, name, self)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


UNREAD: Final[Any] = Unread()


class Watch:
    """One kind: its changes come in their order, late; some may be lost, until it lists again."""

    def __init__(self, cache: Cache[Any], chance: Random) -> None:
        self.cache = cache
        self.behind = 0
        """How many of the newest changes are held back."""
        self.copies = 1
        """How often each change comes; 0: changes are lost."""
        self._chance = chance
        self._waiting: deque[tuple[float, Event]] = deque()
        self._last = 0.0
        self._on = True

    def begin(self, found: list[Manifest], version: int) -> None:
        """List: what was to come before is in the list, or was lost."""
        self._waiting.clear()
        items = tuple(_item(each) for each in found)
        changes = []
        for event in (Restarted(), Listed(items), Synced(str(version))):
            changes += self.cache.take(event)
        self.cache.tell(changes)
        self.cache.advanced()

    def heard(self, old: Manifest | None, new: Manifest | None) -> None:
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + self._chance.choice(USUAL))
        event: Event = Upserted(_item(new)) if new is not None else Removed(_item(cast(Manifest, old)))
        self._waiting.extend(((self._last, event),) * self.copies)
        loop.call_at(self._last, self._deliver)

    def lose(self) -> None:
        """The server does not have the kind any more."""
        self.cache.served = False
        self.begin([], self.cache.version)

    def find(self) -> None:
        """The server has the kind again."""
        self.cache.served = True

    def stall(self, seconds: float) -> None:
        """Nothing comes for a while."""
        self._last = max(self._last, asyncio.get_running_loop().time() + seconds)
        self._waiting = deque((max(at, self._last), event) for at, event in self._waiting)
        asyncio.get_running_loop().call_at(self._last, self._deliver)

    def catch_up(self) -> None:
        """No change is held back or lost any more."""
        self.behind, self.copies = 0, 1
        self._deliver()

    def end(self) -> None:
        self._on = False

    def _deliver(self) -> None:
        now = asyncio.get_running_loop().time() + 1e-6  # a loop's timers may be early by its resolution
        while self._on and len(self._waiting) > self.behind and self._waiting[0][0] <= now:
            changes = self.cache.take(self._waiting.popleft()[1])
            self.cache.tell(changes)
            self.cache.advanced()


class Program:
    """Controllers and loops over caches: from their start until they are killed, amid whatever they do."""

    def __init__(
        self,
        client: Verbs,
        chance: Random,
        kinds: Iterable[Kind[Any]],
        clock: Clock | None = None,
        behind: int = 0,
        seconds: float = 0.0,
        metrics: Any = UNREAD,
    ) -> None:
        """Its first lists lack the last changes of each kind, `behind` at most: they come `seconds` later."""
        self._server, self._chance, self.metrics = client.server, chance, metrics
        self._behind, self._seconds = behind, seconds
        self.client, self.clock = cast(Client, client), clock or client.server.clock
        self.passes = 0
        """How often something was reconciled."""
        self.caches: dict[str, Cache[Any]] = {
            kind.resource: Cache(kind, decode=partial(decoded, kind)) for kind in kinds
        }
        self.watches = {name: Watch(found, chance) for name, found in self.caches.items()}
        self.runners = list[Runner]()
        self._tasks = list[asyncio.Task[None]]()

    def begin(self, parts: Iterable[Controller | Runnable]) -> None:
        """List, follow the server, and run what works on the caches."""
        runs = [self._runner(each) if isinstance(each, Controller) else each for each in parts]
        self.runners = [each for each in runs if isinstance(each, Runner)]
        self._server.listen(self._heard)
        for name, watch in self.watches.items():
            objects, version, missed = self._server.past(name, self._behind)
            watch.begin(objects, version)
            watch.stall(self._seconds if missed else 0.0)
            for change in missed:
                watch.heard(*change)
        self._tasks = [asyncio.create_task(each.run()) for each in runs]

    def _runner(self, each: Controller) -> Runner:
        counted = replace(each, reconcile=self._counted(each.reconcile))
        draw = self._chance.random
        return Runner(counted, self.caches, clock=self.clock, metrics=self.metrics, chance=draw)

    def _heard(self, resource: str, old: Manifest | None, new: Manifest | None) -> None:
        if watch := self.watches.get(resource):
            watch.heard(old, new)

    def _counted(self, reconcile: Reconcile) -> Reconcile:
        async def counted(key: Key) -> Result:
            self.passes += 1
            return await reconcile(key)

        return counted

    def relist(self, resource: str) -> None:
        """A watch whose version is too old lists anew."""
        objects, version, _ = self._server.past(resource, 0)
        self.watches[resource].begin(objects, version)

    def deafen(self) -> None:
        """It hears of no change any more."""
        self._server.deafen(self._heard)
        for watch in self.watches.values():
            watch.end()

    def stop(self) -> None:
        """End at once, wherever it is."""
        self.deafen()
        self.cancel()

    def cancel(self) -> None:
        """Cancel what it does."""
        for task in self._tasks:
            task.cancel()

    async def kill(self) -> None:
        self.stop()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


class Operator(Program):
    """The operator's controllers."""

    def __init__(
        self,
        client: Verbs,
        chance: Random,
        has_workloads: Stays,
        clock: Clock | None = None,
        behind: int = 0,
        seconds: float = 0.0,
        metrics: Any = UNREAD,
    ) -> None:
        super().__init__(
            client, chance, (*KINDS, DIJOB, TRAININGJOB, *KUEUES), clock, behind, seconds, metrics
        )
        self.counters: Any = UNREAD if metrics is UNREAD else Counters(metrics.registry)
        caches = Caches(*(self.caches[kind.resource] for kind in KINDS))
        workloads, locals_, clusters, flavors, cohorts = (self.caches[kind.resource] for kind in KUEUES)
        self.begin(
            controllers(
                self.client,
                caches,
                self.caches[DIJOB.resource],
                self.caches[TRAININGJOB.resource],
                Queues(workloads, locals_, clusters, flavors, cohorts, stays=has_workloads),
                lambda manager: Applier(self.client, cast(Recorder, Nobody()), manager, caches),
                self.counters,
                self.clock.now,
                provision=Provision("image", requests={"cpu": "1"}),
                token=str,
                di_server=DIServer(),
                concurrency=2,
            )
        )


class Crashes(logging.Handler):
    """Breaks a story where the operator logs a traceback: of what it raised, not of what a server told it."""

    def __init__(self, breaks: Callable[[str], None]) -> None:
        super().__init__()
        self._breaks = breaks

    def emit(self, record: logging.LogRecord) -> None:
        kind, error, found = record.exc_info or (None, None, None)
        if error is not None:
            place = traceback.extract_tb(found)[-1].name if found else ""
            last = "".join(traceback.format_exception_only(kind, error)).strip()
            self._breaks(f"{record.getMessage()}, in {place}: {last}")


def _item(found: Manifest) -> Item:
    return item_of(msgspec.json.encode(found))
