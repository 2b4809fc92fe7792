"""Shares the cluster among elastic jobs: looks at all of it, plans, and writes ScalePlans.

A pass runs soon after a job, pod or machine has changed, and now and then. What is decided is kept like each
decision of Brain: `elasticjob explain` tells it, and what was not written is written after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.brain.fulfilment.observed import Objects, observe
from elasticjob.brain.fulfilment.offers import Candidate
from elasticjob.brain.fulfilment.planners import Row
from elasticjob.brain.fulfilment.speeds import with_speeds
from elasticjob.brain.fulfilment.state import Delta, Job, Plan, Waiting
from elasticjob.brain.plans import Plans
from elasticjob.brain.store import NoSuchJob, Record
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.recorder import Recorder, reference
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import Node, Pod

log = logging.getLogger("elasticjob.brain")

EVENT: Final = "Fulfilment"
WAITS: Final = "WaitingForMinimum"
ALL: Final = "all jobs"
"""The pass over all jobs together, in which planners decide."""
SOON: Final = 0.5
"""Seconds after a change, in which further ones are waited for."""


@dataclass
class Measures:
    """What Prometheus is told."""

    registry: CollectorRegistry
    seconds: Histogram = field(init=False)
    steps: Counter = field(init=False)
    waiting: Gauge = field(init=False)
    score: Gauge = field(init=False)

    def __post_init__(self) -> None:
        name, registry = "elasticjob_fulfilment", self.registry
        self.seconds = Histogram(f"{name}_plan_seconds", "Time of one plan for all jobs.", registry=registry)
        what = "Workers that plans added to jobs and took from them."
        self.steps = Counter(f"{name}_instances", what, ["direction"], registry=registry)
        for direction in ("added", "taken"):  # a rate needs a 0 to begin with
            self.steps.labels(direction)
        self.waiting = Gauge(
            f"{name}_waiting_jobs", "Jobs without room for their minimum.", registry=registry
        )
        what = "How much of its range a job has, from 0 at the least to 1 at the most."
        self.score = Gauge(f"{name}_score", what, ["job_namespace", "job_name"], registry=registry)


@dataclass
class Sharing:
    """See the module. `run` works until cancelled."""

    plans: Plans
    pods: Cache[Pod]
    machines: Cache[Node]
    planner: Row
    settle: timedelta
    every: float
    clock: Clock
    now: Callable[[], datetime]
    recorder: Recorder
    measures: Measures
    passes: Passes
    writes: Passes
    _heard: dict[str, datetime] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Plan soon after each change, and at least every so many seconds."""
        plans = self.plans
        watched: list[Cache[Any]] = [plans.jobs, plans.resources, plans.plans, self.pods, self.machines]
        for cache in watched:
            await cache.wait_synced()
            cache.subscribe(lambda change: self._changed.set())
        while True:
            if self.passes.is_due(ALL):
                with self.passes.over(ALL):
                    await self.look()
            try:
                async with asyncio.timeout(self.every):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await self.clock.sleep(SOON)
            self._changed.clear()

    async def look(self) -> Plan:
        """Plan once, and write what changes."""
        now, jobs = self.now(), {str(job.key): job for job in self.plans.jobs.list()}
        plans = self.plans.plans.list()
        cluster, seen = observe(
            Objects(
                self.machines.list(),
                self.pods.list(),
                list(jobs.values()),
                {resource.key: resource for resource in self.plans.resources.list()},
                plans,
                self._hear(plans, now),
            ),
            self.passes,
        )
        speeds = await self.plans.store.speeds() if self.planner.speeds else {}
        known = list[Candidate]()
        for each in seen:
            with self.passes.over(f"speeds of {each.key}"):
                job = jobs[each.key]
                known.append(with_speeds(each, speeds.get(job.metadata.uid, {}), job, now))
        with self.measures.seconds.time():
            plan = self.planner.plan(cluster, known, self.settle, now)
        for delta in plan.deltas:
            if self.writes.is_due(delta.job):
                with self.writes.over(delta.job, reference(ELASTICJOB, jobs[delta.job])):
                    await self._carry_out(jobs[delta.job], delta, now)
        self._tell(jobs, [each.job for each in known], plan.waiting)
        return plan

    def _hear(self, plans: Iterable[ScalePlan], now: datetime) -> Mapping[str, datetime]:
        """Return when each plan was first seen, by the clock of this process.

        Of those that are older than the process only the API server knows.
        """
        begins, before = not self._heard, self._heard
        self._heard = {ALL: now}  # this is not the first look any more
        for plan in plans:
            made = plan.metadata.creation_timestamp if begins else None
            self._heard[plan.metadata.uid] = before.get(plan.metadata.uid, min(made or now, now))
        return self._heard

    async def _carry_out(self, job: ElasticJob, delta: Delta, now: datetime) -> None:
        try:
            history = await self.plans.store.history(job.metadata.uid, now, past=False)
        except NoSuchJob:  # the monitor has not seen it yet
            return
        if any(each.plan and not each.outcome for each in history.planned[-1:]):
            return  # its last plan is not written yet: the pass over the job does that, or gives it up
        sizes = {"groups": {WORKER: {"count": delta.after}}}
        inputs = {"before": delta.before, "after": delta.after}
        kept = Record(now, EVENT, self.planner.name, delta.reason, inputs, sizes)
        if await self.plans.carry_out(job, kept, history.decisions, now):
            direction = "added" if delta.after > delta.before else "taken"
            self.measures.steps.labels(direction).inc(abs(delta.after - delta.before))

    def _tell(self, jobs: dict[str, ElasticJob], planned: Iterable[Job], waiting: Sequence[Waiting]) -> None:
        """Tell the users of jobs that wait, once for each reason."""
        self.measures.waiting.set(len(waiting))
        self.measures.score.clear()
        for each in planned:
            namespace, name = Key(*each.key.split("/"))
            self.measures.score.labels(namespace, name).set(
                (each.now - each.least) / (each.most - each.least)
            )
        for one in waiting:
            if self._waiting.get(one.job) != one.reason and one.job in jobs:
                about = reference(ELASTICJOB, jobs[one.job])
                self.recorder.event(about, "Warning", WAITS, one.reason)
        self._waiting = {one.job: one.reason for one in waiting}
