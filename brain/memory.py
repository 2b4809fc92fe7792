"""What Brain remembers of jobs, as its page shows it: read from the store, at most every few seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Row

from elasticjob.brain.history import Sample
from elasticjob.brain.page.seen import Past
from elasticjob.brain.page.series import Point
from elasticjob.brain.store import NoSuchJob, Store
from elasticjob.kube.clock import Clock

T = TypeVar("T")

MOST_JOBS: Final = 500
MOST_SAMPLES: Final = 500
FRESH: Final = 5.0
"""Seconds between two readings of the same."""
MOST_KEPT: Final = 64
JOB_FIELDS: Final = ("uid", "namespace", "name", "phase", "strategy", "mode", "began", "ended", "status")
POD_FIELDS: Final = ("uid", "name", "role", "machine", "phase", "reason", "began", "ended", "log")


class StoredJobs:
    """The jobs in the store. Its methods raise DatabaseAway."""

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
