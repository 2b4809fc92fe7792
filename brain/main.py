"""Brain as a process: the database, the server, and, with a cluster, the monitor and the plans."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, Protocol

import aiohttp
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
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
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.controller.controller import Controller
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.controller.predicates import generation_changed
from elasticjob.kube.election.election import Election
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.owner import Owner
from elasticjob.kube.objects.views import NODE, POD, ROLE
from elasticjob.kube.operator.operator import Group, Operator
from elasticjob.sizing.table import all_algorithms

NAME: Final = "elasticjob-brain"
COUNT_ALGORITHMS: Final = ("worker-beside-ps", "worker-model", "worker-growth")
"""They decide numbers of workers by what one job gains: a planner of the whole cluster takes their place."""


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
    jobs, resources = operator.cache(ELASTICJOB), operator.cache(JOBRESOURCE)
    row = PLANNERS.get(settings.share)
    pods = operator.cache(POD, labels=LABEL_JOB if row is None else "")
    by_setting: Mapping[From, Source | None] = {
        From.MASTERS: sources.Masters(session),
        From.PROMETHEUS: Prometheus(settings.prometheus, session),
        From.NONE: None,
    }
    now = operator.clock.now
    monitor = Monitor(
        store,
        client,
        jobs,
        pods,
        operator.cache(NODE),
        by_setting[settings.source],
        settings.retention,
        settings.every,
        operator.clock,
        now,
        Passes("brain-samples", operator.clock, operator.metrics, operator.recorder),
    )
    pace = Pace().times(settings.pace)
    written, every = operator.cache(SCALEPLAN), timedelta(seconds=settings.every)
    algorithms = tuple(each for each in all_algorithms() if row is None or each.name not in COUNT_ALGORITHMS)
    plans = Plans(store, client, jobs, resources, written, algorithms, pace, every, now)
    for each in monitor.controllers:
        operator.add(each)
    operator.add(monitor, Group.CONTROLLERS)
    watches = ((JOBRESOURCE, _same_name, generation_changed), (SCALEPLAN, _its_job))
    operator.add(Controller("brain-plans", plans, for_=ELASTICJOB, watches=watches))
    if row is not None:
        operator.add(
            Sharing(
                plans,
                pods,
                operator.cache(NODE),
                row,
                timedelta(seconds=settings.settle),
                settings.every,
                operator.clock,
                now,
                operator.recorder,
                Measures(operator.metrics.registry),
                Passes("brain-sharing", operator.clock, operator.metrics, operator.recorder),
                Passes("brain-sharing-plans", operator.clock, operator.metrics, operator.recorder),
            ),
            Group.CONTROLLERS,
        )
    return operator


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
