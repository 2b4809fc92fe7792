"""The seam for controllers of jobs: which queue a job is in, and what it has of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.controllers.kueue.demand import QueueRequest, is_slice, owner_job
from elasticjob.controllers.kueue.grant import Grant, places_of
from elasticjob.controllers.kueue.quota import Market, cluster_queue_of, market
from elasticjob.controllers.kueue.reasons import explain
from elasticjob.controllers.kueue.reclaim import Reclaim, crowds, reclaim, with_claims, without_slices
from elasticjob.controllers.kueue.replacement import Holdings, never
from elasticjob.controllers.kueue.workload import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from elasticjob.controllers.passes.plan import soonest
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.controller.predicates import generation_changed
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.kinds import Key

JOB: Final = "job"
"""The index of Workloads by the job that they are for."""
SLICES: Final = "slices"
"""The index of slices by the kind of their job."""
LOOK: Final = timedelta(seconds=1)
"""How long one look at all queues is believed, for each thousand Workloads."""
MANY: Final = 1000
LEFT: Final = timedelta(seconds=15)
"""How long it is believed that Workloads have gone with their definition, unless a watch says it."""


async def _always() -> bool:
    return True


class Look(NamedTuple):
    """All quota, also with what slices wait for as taken; the slices to give back; the ClusterQueues in which
    others wait, so that no job grows; and when that may change by time alone."""

    market: Market
    reclaim: Reclaim
    crowded: frozenset[str]
    again: timedelta | None


@dataclass
class Queues:
    """Kueue's objects in memory. Without Kueue in the cluster, no job is in a queue."""

    workloads: Cache[Workload]
    locals: Cache[LocalQueue]
    clusters: Cache[ClusterQueue]
    flavors: Cache[ResourceFlavor]
    cohorts: Cache[Cohort]
    gives_back: bool = True
    stays: Callable[[], Awaitable[bool]] = _always
    """Asks whether the cluster goes on to have Workloads."""
    doubtful: set[tuple[str, Key]] = field(default_factory=set)
    """Jobs, with their kind, of which a pass failed or returned quota: caches may not show what it wrote."""
    _deleted: set[str] = field(default_factory=set)
    """The uids of Workloads that somebody deletes, while the kind stays."""
    _vanished: set[Key] = field(default_factory=set)
    """Jobs whose base held quota when it was there no more: somebody has taken its finalizers."""
    _leaves: bool = False
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asks: int = 0
    _turns: dict[Key, tuple[asyncio.Lock, int]] = field(default_factory=dict)
    _looked: datetime | None = None
    _version: int = 0
    _last: Look = field(default_factory=lambda: Look(Market(), Reclaim(), frozenset(), None))

    def __post_init__(self) -> None:
        self.workloads.add_index(JOB, _job)
        self.workloads.add_index(SLICES, _kind_of_slice)
        self.workloads.on_served(self._comes_or_goes)
        self.workloads.subscribe(self._workload_changed)
        for cache in (self.locals, self.clusters, self.cohorts):
            cache.subscribe(self._quota_changed)

    def _workload_changed(self, change: Change) -> None:
        gone = self.workloads.fitting(change.old) if change.old is not None and change.new is None else None
        if gone is not None and gone.has_quota and not gone.is_finished and not is_slice(gone):
            self._vanished.add(Key(gone.metadata.namespace, owner_job(gone)))

    def _quota_changed(self, change: Change) -> None:
        if generation_changed(change):
            self._looked = None

    def _comes_or_goes(self) -> None:
        self._leaves = False
        self._deleted.clear()
        self._vanished.clear()

    @property
    def ask_again_in(self) -> timedelta | None:
        """When to ask again whether a kind that went is back: after a short while away, no watch says so."""
        return LEFT if self.workloads.served and self._leaves else None

    @property
    def on(self) -> bool:
        """Whether the cluster has Kueue, and keeps it: a kind that goes away evicts nobody."""
        return self.workloads.served and not self._leaves

    def of(self, key: Key, uid: str = "") -> tuple[Workload, ...]:
        """Return the Workloads of a job; those of an earlier job of its name have another owner."""
        found = self.workloads.by_index(JOB, str(key))
        return tuple(
            each for each in found if not uid or any(o.uid == uid for o in each.metadata.owner_references)
        )

    def prebuilt(self, demand: QueueRequest) -> Workload | None:
        """Return the Workload that was made for a job beforehand, as long as nobody owns it."""
        found = self.workloads.get(Key(demand.key.namespace, demand.prebuilt))
        return found if found and not found.metadata.owner_references else None

    def grant(self, demand: QueueRequest) -> Grant:
        """Return what the queue gives to a job."""
        every = self.of(demand.key, demand.uid)
        found = Holdings(demand, every)
        base, slices = found.base, found.slices
        flavors = {each.metadata.name: each for each in self.flavors.list()}
        admitted = base is not None and base.is_admitted and not demand.suspended
        chosen = [base, *sorted(slices, key=lambda s: s.metadata.name)] if base and admitted else []
        reason, sentence = explain(demand, base, slices, found.beside)
        return Grant(
            queue=demand.queue,
            admitted=admitted,
            reason=reason,
            sentence=sentence,
            least={role.name: role.least for role in demand.roles},
            places=tuple(place for each in chosen for place in places_of(each, flavors)),
        )

    def never(self, demand: QueueRequest) -> str:
        """Return why its queue could not ever give a job what it runs at least, "" where it could."""
        base = Holdings(demand, self.of(demand.key, demand.uid)).base
        empty = market(self.clusters.list(), (), self.cohorts.list())
        return never(empty, self.cluster_queue(demand.key, demand.queue), demand, base)

    def cluster_queue(self, key: Key, queue: str) -> str:
        """Return the ClusterQueue behind a queue of a job's namespace, "" if there is none."""
        found = self.locals.get(Key(key.namespace, queue))
        return found.spec.cluster_queue if found else ""

    def look(self, now: datetime) -> Look:
        """Return all quota, and what is to be done about it."""
        believed = LOOK * max(1, len(self.workloads) // MANY)
        if self._looked is None or not timedelta(0) <= now - self._looked < believed:
            every, found, cohorts = self.workloads.list(), self.clusters.list(), self.cohorts.list()
            flavors = self.flavors.list()
            used = market(found, every, cohorts, flavors)
            local = {(q.metadata.namespace, q.metadata.name): q for q in self.locals.list()}

            def queue_of(each: Workload) -> str:
                return cluster_queue_of(each, local)

            wanted = reclaim(used, every, queue_of, now) if self.gives_back else Reclaim()
            most = without_slices(used, every) if self.gives_back else market(found, (), cohorts, flavors)
            crowded = crowds(used, most, every, queue_of, now)
            self._last = Look(with_claims(used, every, queue_of), wanted, crowded, wanted.again)
            self._looked, self._version = now, self.workloads.version
        elif self._version != self.workloads.version:  # there is news that this look has not
            left = believed - (now - self._looked)
            return self._last._replace(again=soonest((self._last.again, left)))
        return self._last

    def look_anew(self) -> bool:
        """Forget the last look if there is news since; returns whether there is."""
        stale = self._version != self.workloads.version
        if stale:
            self._looked = None
        return stale

    @asynccontextmanager
    async def turn(
        self, kind: str, key: Key, find: Callable[[Key], CustomResource | None]
    ) -> AsyncIterator[None]:
        """Let one pass over a job of a kind run at a time, whichever controller it is of.

        What one pass returns to the queue, another may otherwise be about to use.
        """
        await self._ask_why_they_go(key, find)
        if not self.on:
            yield
            return
        lock, users = self._turns.get(key, (asyncio.Lock(), 0))
        self._turns[key] = (lock, users + 1)
        try:
            async with lock:
                await self._ask_why_they_go(key, find)  # they may have gone while another pass ran
                yield
        except Exception:
            self.doubtful.add((kind, key))
            raise
        finally:
            lock, users = self._turns[key]
            if users == 1:
                del self._turns[key]
            else:
                self._turns[key] = (lock, users - 1)

    async def _ask_why_they_go(self, key: Key, find: Callable[[Key], CustomResource | None]) -> None:
        """A Workload that is deleted is an eviction, unless all are deleted with their definition.

        Hardly any pass meets one: only then is the job decoded.
        """
        if not self.workloads.served:
            return
        metas, vanished = self.workloads.metas(JOB, str(key)), key in self._vanished
        new = {each.uid for each in metas if each.deletion_timestamp is not None} - self._deleted
        if not (new or vanished or self._leaves):
            return
        job = find(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            self._vanished.discard(key)
            return
        mine, asks = self.of(key, job.metadata.uid), self._asks
        going = {each.metadata.uid for each in mine if each.metadata.deletion_timestamp is not None}
        if going <= self._deleted and not vanished and not self._leaves:
            return
        async with self._asking:
            if asks == self._asks:  # no answer that was asked for since
                self._asks += 1
                self._leaves = not await self.stays()
        self._deleted |= going
        self._vanished.discard(key)


def jobs_with_slices(workloads: Cache[Workload], kind: str) -> Iterator[Key]:
    """Return the jobs of a kind that have slices; nothing is decoded for them."""
    found = workloads.metas(SLICES, kind)
    yield from dict.fromkeys(Key(each.namespace, (each.labels or {}).get(LABEL_JOB, "")) for each in found)


def kind_of(workload: Workload) -> str:
    """Return the kind of the job that controls a Workload, "" if nothing does."""
    return next((owner.kind for owner in workload.metadata.owner_references if owner.controller), "")


def _kind_of_slice(workload: Workload) -> Iterable[str]:
    return (kind_of(workload),) if is_slice(workload) else ()


def _job(workload: Workload) -> Iterable[str]:
    job = owner_job(workload)
    return (str(Key(workload.metadata.namespace, job)),) if job else ()
