"""The operator's controllers over caches that a server in memory fills, each kind with its own delay."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import cache
from random import Random
from typing import Any, Final, cast

import msgspec
from prometheus_client import CollectorRegistry

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.pods import Server as DIServer
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.dijob import controller as dijobs
from elasticjob.controllers.dijob.seen import Caches as DIJobCaches
from elasticjob.controllers.elasticjob import controller as jobs
from elasticjob.controllers.elasticjob.master import Provision, master_pod
from elasticjob.controllers.jobresource import controller as nodes
from elasticjob.controllers.jobresource.room import Rooms
from elasticjob.controllers.kueue import controller as queue
from elasticjob.controllers.kueue.admission import Admission
from elasticjob.controllers.kueue.kinds.dijob import DIJobs
from elasticjob.controllers.kueue.kinds.elasticjob import ElasticJobs
from elasticjob.controllers.kueue.queues import Queues
from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, COHORT, FLAVOR, LOCAL_QUEUE, WORKLOAD
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.nodes.relaunch import Node
from elasticjob.controllers.parts.gangs.served import GangApis
from elasticjob.controllers.parts.names import MASTER
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.orphans import Orphans
from elasticjob.controllers.scaleplan import controller as plans
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Event, Listed, Removed, Restarted, Synced, Upserted
from elasticjob.kube.cache.wire import Item, item_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.controller.controller import Controller, Runner
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD, SERVICE
from lab.build.caches import Nobody
from lab.virtual.server import Server

KINDS: Final[tuple[Kind[Any], ...]] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, POD, SERVICE, NODE)
KUEUES: Final[tuple[Kind[Any], ...]] = (WORKLOAD, LOCAL_QUEUE, CLUSTER_QUEUE, FLAVOR, COHORT)
Stays = Callable[[], Awaitable[bool]]
"""Whether the server itself has the definition of Workloads."""
USUAL: Final = (0.001, 0.005, 0.02, 0.1)
"""Seconds after which a watch tells of a change."""


class Watch:
    """One kind: its changes come in their order, late."""

    def __init__(self, cache: Cache[Any], chance: Random) -> None:
        self.cache = cache
        self._chance = chance
        self._waiting: deque[tuple[float, Event]] = deque()
        self._last = 0.0
        self._on = True

    def begin(self, found: list[Manifest], version: int) -> None:
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
        self._waiting.append((self._last, event))
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

    def end(self) -> None:
        self._on = False

    def _deliver(self) -> None:
        now = asyncio.get_running_loop().time() + 1e-6  # a loop's timers may be early by its resolution
        while self._on and self._waiting and self._waiting[0][0] <= now:
            changes = self.cache.take(self._waiting.popleft()[1])
            self.cache.tell(changes)
            self.cache.advanced()


class Operator:
    """One process: from its start until it is killed, in the middle of whatever it does."""

    def __init__(self, server: Server, chance: Random, has_workloads: Stays) -> None:
        self._server = server
        made: dict[str, Cache[Any]] = {kind.resource: Cache(kind) for kind in (*KINDS, DIJOB, *KUEUES)}
        self.watches = {name: Watch(found, chance) for name, found in made.items()}
        caches = Caches(*(made[kind.resource] for kind in KINDS))
        clock, metrics = server.clock, metrics_of_all()
        self.runners = [
            Runner(each, made, clock=clock, metrics=metrics, chance=chance.random)
            for each in controllers(server, caches, made, has_workloads)
        ]
        server.listen(self._heard)
        for name, watch in self.watches.items():
            watch.begin(list(server.objects.get(name, {}).values()), server.version)
        self._tasks = [asyncio.create_task(runner.run()) for runner in self.runners]

    def _heard(self, resource: str, old: Manifest | None, new: Manifest | None) -> None:
        if watch := self.watches.get(resource):
            watch.heard(old, new)

    async def kill(self) -> None:
        self._server.deafen(self._heard)
        for watch in self.watches.values():
            watch.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


def controllers(
    server: Server, caches: Caches, made: dict[str, Cache[Any]], has_workloads: Stays
) -> list[Controller]:
    """The controllers that jobs in queues need, put together as `controllers/main.py` does."""
    client, now = cast(Client, server), server.clock.now

    def applier(manager: str) -> Applier:
        return Applier(client, cast(Recorder, Nobody()), manager, caches)

    orphans, provision = Orphans(client, caches, now), Provision("image", requests={"cpu": "1"})

    def master(job: ElasticJob) -> Manifest:
        spec: Manifest = master_pod(job, Node(MASTER, 0), provision).manifest["spec"]
        return spec

    workloads, locals_, clusters, flavors, cohorts = (made[kind.resource] for kind in KUEUES)
    queues = Queues(workloads, locals_, clusters, flavors, cohorts, stays=has_workloads)
    admission = Admission(queues, ElasticJobs(caches, master))
    counters = Counters(CollectorRegistry())
    served = GangApis(client, now)
    reconcile_job = jobs.JobReconciler(
        caches, applier(jobs.MANAGER), orphans, provision, counters, now, str, served, admission
    )
    reconcile_nodes = nodes.NodesReconciler(
        caches, applier(nodes.MANAGER), orphans, now, rooms=Rooms(caches), admission=admission
    )
    reconcile_plans = plans.PlansReconciler(caches, applier(plans.MANAGER), counters, now, admission)
    reconcile_queue = queue.QueueReconciler(client, admission, applier(queue.MANAGER), now)
    found = DIJobCaches(made[DIJOB.resource], caches.pods, caches.services)
    of_dijobs = Admission(queues, DIJobs(found.jobs, caches.pods))
    reconcile_queue_of_dijobs = queue.QueueReconciler(client, of_dijobs, applier(queue.MANAGER), now)
    reconcile_dijobs = dijobs.DIJobReconciler(
        found, applier(dijobs.MANAGER), now, DIServer(), counters.dijobs, admission=of_dijobs
    )
    return [
        jobs.controller(reconcile_job, 2),
        nodes.controller(reconcile_nodes, 2),
        plans.controller(reconcile_plans, 2),
        queue.controller(reconcile_queue, 2),
        queue.controller(reconcile_queue_of_dijobs, 2),
        dijobs.controller(reconcile_dijobs, 2),
    ]


@cache
def metrics_of_all() -> Metrics:
    """Series that no test reads: to make them takes longer than a run."""
    return Metrics(CollectorRegistry())


def _item(found: Manifest) -> Item:
    return item_of(msgspec.json.encode(found))
