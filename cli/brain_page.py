"""The page of a Brain: the jobs that it remembers, and, where it has a cluster, those that it watches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

import aiohttp
from sqlalchemy import Row

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.brain.history import Sample
from elasticjob.brain.server import Routes
from elasticjob.brain.settings import Settings
from elasticjob.brain.store import NoSuchJob, Store
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.objects.views import NODE, POD
from elasticjob.kube.operator.operator import Operator
from elasticjob.page.masters import Masters, Way
from elasticjob.page.pages import Pages, Views
from elasticjob.page.remembered import FromMemory
from elasticjob.page.seen import Past
from elasticjob.page.series import Point
from elasticjob.page.watch import Caches, Watch

T = TypeVar("T")

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

MOST_JOBS: Final = 500
MOST_SAMPLES: Final = 500
FRESH: Final = 5.0
"""Seconds between two readings of the same."""
MOST_KEPT: Final = 64
JOB_FIELDS: Final = ("uid", "namespace", "name", "phase", "strategy", "mode", "began", "ended", "status")
POD_FIELDS: Final = ("uid", "name", "role", "machine", "phase", "reason", "began", "ended", "log")


def page(
    settings: Settings, store: Store, operator: Operator | None, session: aiohttp.ClientSession
) -> Routes:
    """Return the page's requests; an operator feeds and runs what it shows, on standbys too.

    Logs of pods are for readers with a token, unless Brain listens on this machine alone.
    """
    shown: Views
    if operator is None:
        shown = FromMemory(StoredJobs(store, SystemClock()), SystemClock())
    else:
        shown = watch_of(operator, settings, store, session)
    logs = settings.reading_token_file is not None or settings.host in LOOPBACK
    return Pages(shown, logs=logs).routes


def watch_of(operator: Operator, settings: Settings, store: Store, session: aiohttp.ClientSession) -> Watch:
    """Return what a page with a cluster shows, which the operator runs."""
    watch = Watch(
        operator.client,
        Caches(
            operator.cache(ELASTICJOB), operator.cache(SCALEPLAN), operator.cache(POD), operator.cache(NODE)
        ),
        Masters(operator.client, session, Way.DIRECT),
        operator.clock,
        passes=Passes("page", operator.clock, operator.metrics),
        namespace=settings.namespace,
        memory=StoredJobs(store, operator.clock),
    )
    operator.add(watch)
    return watch


class StoredJobs:
    """The jobs in the store, read at most every few seconds. Its methods raise DatabaseAway."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._kept: dict[tuple[str, ...], tuple[float, Any]] = {}

    async def jobs(self) -> Sequence[Mapping[str, Any]]:
        """Return the newest jobs."""
        return await self._fresh((), self._jobs)

    async def job(self, namespace: str, name: str) -> Past | None:
        """Return the newest job of this name, and all that is kept of it."""
        return await self._fresh((namespace, name), lambda: self._job(namespace, name))

    async def _fresh(self, key: tuple[str, ...], read: Callable[[], Awaitable[T]]) -> T:
        now = self._clock.monotonic()
        at, found = self._kept.get(key, (-FRESH, None))
        if now - at < FRESH:
            return cast(T, found)
        read_now = await read()
        self._kept.pop(key, None)
        while len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[key] = now, read_now
        return read_now

    async def _jobs(self) -> Sequence[Mapping[str, Any]]:
        return [_fields(row, JOB_FIELDS) for row in await self._store.newest_jobs(MOST_JOBS)]

    async def _job(self, namespace: str, name: str) -> Past | None:
        try:
            row = await self._store.find(namespace, name)
        except NoSuchJob:
            return None
        samples = await self._store.samples_of(row.uid, MOST_SAMPLES)
        decisions = await self._store.decisions_of(row.uid)
        pods = await self._store.pods_of(row.uid)
        return Past(
            _fields(row, JOB_FIELDS),
            [_point(sample) for sample in samples],
            [asdict(each) for each in decisions],
            [_fields(pod, POD_FIELDS) for pod in pods],
            cost(samples),
        )


def cost(samples: Sequence[Sample]) -> str:
    """Return in a sentence how many core-hours were used, of those asked for; "" where nothing is known."""
    hours = [
        ((later.at - sooner.at).total_seconds() / 3600, later.nodes) for sooner, later in pairwise(samples)
    ]
    used = sum(time * node.cpu for time, nodes in hours for node in nodes)
    asked = sum(time * node.cores for time, nodes in hours for node in nodes)
    if not used:
        return ""
    share = f" of {asked:.3g} asked for ({used / asked:.0%})" if asked else ""
    return f"{used:.3g} core-hours used{share}, as far as Brain has measured"


def _fields(row: Row[Any], names: Sequence[str]) -> Mapping[str, Any]:
    return {name: getattr(row, name) for name in names}


def _point(sample: Sample) -> Point:
    goodput = float("nan") if sample.goodput is None else sample.goodput
    return Point(sample.at.timestamp(), sample.steps, sample.samples, sample.workers, goodput)
