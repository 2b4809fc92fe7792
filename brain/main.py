"""Brain as a process: the database, the server, and, with a cluster, the monitor and the plans."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import aiohttp
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.brain.access import Access
from elasticjob.brain.answers import Answers
from elasticjob.brain.events import Pace
from elasticjob.brain.fulfilment.planners import PLANNERS
from elasticjob.brain.monitor import sources
from elasticjob.brain.monitor.sources import Prometheus, Source
from elasticjob.brain.monitor.watch import Monitor
from elasticjob.brain.plans import Plans
from elasticjob.brain.server import Routes, Server
from elasticjob.brain.settings import Settings
from elasticjob.brain.settings import Source as From
from elasticjob.brain.sharing import Measures, Sharing
from elasticjob.brain.store import Store, open_store
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.controller.controller import Controller
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.controller.predicates import generation_changed
from elasticjob.kube.election.election import Election
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.owner import Owner
from elasticjob.kube.objects.views import NODE, POD, ROLE, Node, Pod
from elasticjob.kube.operator.operator import Group, Operator
from elasticjob.kube.operator.rungroup import Runnable
from elasticjob.sizing.table import all_algorithms

NAME: Final = "elasticjob-brain"
COUNT_ALGORITHMS: Final = ("worker-beside-ps", "worker-model", "worker-growth")
"""They decide numbers of workers by what one job gains: a planner of the whole cluster takes their place."""


@dataclass(frozen=True)
class Caches:
    """The caches of Brain; of pods those of jobs are enough where it does not share the cluster."""

    jobs: Cache[ElasticJob]
    resources: Cache[JobResource]
    plans: Cache[ScalePlan]
    pods: Cache[Pod]
    machines: Cache[Node]


class Page(Protocol):
    """Makes the requests of people; with an operator, which feeds and runs it, of its cluster too."""

    def __call__(
        self, settings: Settings, store: Store, operator: Operator | None, session: aiohttp.ClientSession
    ) -> Routes:
        """Return handlers by path."""


async def run(settings: Settings, page: Page) -> None:
    """Run Brain until SIGTERM, SIGINT or cancellation.

    Raises LeadershipLost when another replica may plan: the process must end at once.
    """
    async with open_store(settings.database) as store, aiohttp.ClientSession() as session:
        if not settings.cluster:
            async with serving(settings, store, CollectorRegistry(), page(settings, store, None, session)):
                await _wait_for_signal()
            return
        found = await config.load(settings.kubeconfig, settings.context)
        async with Client(found, user_agent=NAME) as client:
            operator = compose(client, settings, store, session)
            routes = page(settings, store, operator, session)
            async with serving(settings, store, operator.metrics.registry, routes):
                await operator.run()


@asynccontextmanager
async def serving(
    settings: Settings, store: Store, registry: CollectorRegistry, pages: Routes | None = None
) -> AsyncIterator[Server]:
    """Serve masters and readers."""
    answers = Answers(store, all_algorithms(), plans=settings.cluster)
    access = Access(settings.key_file, settings.reading_token_file)
    now = SystemClock().now
    async with Server(
        store, answers, access, now, registry, pages=pages, host=settings.host, port=settings.port
    ) as server:
        yield server


def compose(
    client: Client,
    settings: Settings,
    store: Store,
    session: aiohttp.ClientSession,
    *,
    signals: bool = True,
    election: Election | None = None,
) -> Operator:
    """Return what watches the cluster and plans for its jobs, not started; `election` is for tests."""
    if settings.leader_election:
        there = settings.lease_namespace or None
        owner = Owner(ROLE, settings.lease_owner, there) if settings.lease_owner else None
        election = election or Election(settings.lease, settings.lease_namespace, owner=owner)
    operator = Operator(
        client,
        settings.namespace,
        name=NAME,
        probes=settings.probes or None,
        signals=signals,
        election=election,
    )
    caches = Caches(
        operator.cache(ELASTICJOB),
        operator.cache(JOBRESOURCE),
        operator.cache(SCALEPLAN),
        operator.cache(POD, labels="" if settings.share in PLANNERS else LABEL_JOB),
        operator.cache(NODE),
    )
    by_setting: Mapping[From, Source | None] = {
        From.MASTERS: sources.Masters(session),
        From.PROMETHEUS: Prometheus(settings.prometheus, session),
        From.NONE: None,
    }
    found = parts(
        client,
        caches,
        store,
        by_setting[settings.source],
        settings,
        operator.clock,
        operator.metrics,
        operator.recorder,
        operator.metrics.registry,
    )
    for each in found:
        operator.add(each, Group.CONTROLLERS)
    return operator


def parts(
    client: Client,
    caches: Caches,
    store: Store,
    source: Source | None,
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    recorder: Recorder,
    registry: CollectorRegistry,
) -> Iterator[Controller | Runnable]:
    """Yield what follows the cluster and plans for its jobs, over caches that anything may fill."""
    now, row = clock.now, PLANNERS.get(settings.share)

    def passes(loop: str) -> Passes:
        return Passes(loop, clock, metrics, recorder)

    monitor = Monitor(
        store,
        client,
        caches.jobs,
        caches.pods,
        caches.machines,
        source,
        settings.retention,
        settings.every,
        clock,
        now,
        passes("brain-samples"),
    )
    pace, every = Pace().times(settings.pace), timedelta(seconds=settings.every)
    algorithms = tuple(each for each in all_algorithms() if row is None or each.name not in COUNT_ALGORITHMS)
    plans = Plans(store, client, caches.jobs, caches.resources, caches.plans, algorithms, pace, every, now)
    yield from monitor.controllers
    yield monitor
    watches = ((JOBRESOURCE, _same_name, generation_changed), (SCALEPLAN, _its_job))
    yield Controller("brain-plans", plans, for_=ELASTICJOB, watches=watches)
    if row is not None:
        yield Sharing(
            plans,
            caches.pods,
            caches.machines,
            row,
            timedelta(seconds=settings.settle),
            settings.every,
            clock,
            now,
            recorder,
            Measures(registry),
            passes("brain-sharing"),
            passes("brain-sharing-plans"),
        )


def _same_name(resource: JobResource) -> list[Key]:
    return [resource.key]


def _its_job(plan: ScalePlan) -> list[Key]:
    return [Key(plan.metadata.namespace, plan.spec.owner_job)]


async def _wait_for_signal() -> None:
    """Return at SIGTERM or SIGINT."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
