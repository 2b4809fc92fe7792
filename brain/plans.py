"""Writes the ScalePlans of running jobs in cluster mode: observe, decide, keep the decision, write the plan.

A decision is kept, with the name of its plan, before the plan is written. After a crash in between the plan
is written by the next pass: its name is the same, so that the API server takes it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from elasticjob.api.readings import number
from elasticjob.api.rpc.brain import Sizes
from elasticjob.api.sizes.facts import Placement
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob, OptimizeMode
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan, plan_manifest
from elasticjob.api.v1alpha1.sizing import facts_of, placement_of
from elasticjob.brain.answers import kept_of
from elasticjob.brain.events import Pace, event_of, is_steady, size_of_verdict
from elasticjob.brain.fulfilment.speeds import remaining
from elasticjob.brain.history import History
from elasticjob.brain.monitor.objects import TRAINING
from elasticjob.brain.store import NoSuchJob, Record, Store
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Result
from elasticjob.kube.errors import AlreadyExists
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.sizing.algorithm import Algorithm, Decider
from elasticjob.sizing.decide import decide
from elasticjob.sizing.facts import Facts

log = logging.getLogger("elasticjob.brain")

PLAIN: Final = SCALEPLAN.untyped()
WRITTEN: Final = "Written"
LATE: Final = "Late"
"""Outcomes of decisions with a plan: it is written; or it was not for so long that it is out of date. Later
the phase in which the plan ended."""
OUT_OF_DATE: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Plans:
    """One pass over one job. Time, the cluster and the table of algorithms are arguments."""

    store: Store
    client: Client
    jobs: Cache[ElasticJob]
    resources: Cache[JobResource]
    plans: Cache[ScalePlan]
    algorithms: tuple[Algorithm, ...]
    pace: Pace
    every: timedelta
    now: Callable[[], datetime]

    async def __call__(self, key: Key) -> Result:
        """Look at the sizes of a job."""
        job, resource = self.jobs.get(key), self.resources.get(key)
        if job is None or resource is None or not is_ours(job):
            return Result.done()
        now = self.now()
        try:
            history = await self.store.history(job.metadata.uid, now, past=False)
        except NoSuchJob:  # the monitor has not seen it yet
            return Result.again(self.every)
        await self._follow(job, history, now)
        facts = self.facts(job, placement_of(resource), history, now)
        if (event := event_of(facts, history.last, self.pace)) is not None:
            decision = decide(facts, event, Decider.BRAIN, self.algorithms)
            if decision.change:
                await self.carry_out(job, kept_of(decision, event, facts), history.decisions, now)
        return Result.again(self.every)

    def facts(self, job: ElasticJob, placed: Placement, history: History, now: datetime) -> Facts:
        """Return all that a decision rests on."""
        eta = job.status.training.eta if job.status.training else None
        facts = history.facts(
            facts_of(job),
            placed,
            now,
            settled=is_steady(history.samples, placed.sizes, self.pace),
            judged=size_of_verdict(history.samples, self.pace),
        )
        began = job.status.start_time
        return replace(facts, remaining=remaining(job, now), total=eta - began if eta and began else None)

    async def carry_out(self, job: ElasticJob, kept: Record, after: int, now: datetime) -> bool:
        """Keep a decision that was made when a job had `after` of them, and write its plan.

        False if there has been another decision since.
        """
        if (taken := self._highest(job)) > after:  # they were decided with a database that is lost
            await self.store.number_after(job.metadata.uid, taken)
            after = taken
        kept = replace(kept, plan=plan_name(job, after + 1))
        if (number := await self.store.keep(job.metadata.uid, kept, after)) is None:
            return False
        await self._write(job, replace(kept, number=number), now)
        return True

    def _highest(self, job: ElasticJob) -> int:
        """The highest number in the name of a plan of this job."""
        prefix = plan_name(job, 1).removesuffix("1")
        names = (plan.metadata.name for plan in self.plans.list(job.metadata.namespace))
        return max((number(n.removeprefix(prefix)) for n in names if n.startswith(prefix)), default=0)

    async def _follow(self, job: ElasticJob, history: History, now: datetime) -> None:
        """Write the plan of the last decision, if it is not written yet; note how plans have ended."""
        if history.planned and (last := history.planned[-1]).plan and not last.outcome:
            (kept,) = await self.store.decisions_of(job.metadata.uid, 1)
            await self._write(job, kept, now)
        for each in history.planned:
            plan = self.plans.get(Key(job.metadata.namespace, each.plan)) if each.outcome == WRITTEN else None
            if plan and plan.status.phase and plan.status.phase.is_terminal:
                await self.store.note_end(job.metadata.uid, each.number, plan.status.phase.value)

    async def _write(self, job: ElasticJob, kept: Record, now: datetime) -> None:
        """Write the plan of a decision, unless that is out of date."""
        outcome = LATE
        if now - kept.at < OUT_OF_DATE:
            outcome = WRITTEN
            try:
                await self.client.create(PLAIN, manifest(job, kept))
            except AlreadyExists:
                pass
            else:
                told = {"job": str(job.key), "plan": kept.plan, "why": kept.reason}
                log.info("ScalePlan written", extra=told)
        await self.store.note_end(job.metadata.uid, kept.number, outcome)


def is_ours(job: ElasticJob) -> bool:
    """Whether Brain plans for a job now: it runs, in cluster mode, by this operator."""
    return (
        job.spec.optimize_mode is OptimizeMode.CLUSTER
        and job.status.phase in TRAINING
        and not job.spec.suspend
        and not job.spec.managed_by
        and job.metadata.deletion_timestamp is None
    )


def plan_name(job: ElasticJob, number: int) -> str:
    """Return the name of the plan of a decision: a namesake of the job gets other ones."""
    return f"{job.metadata.name}-brain-{job.metadata.uid[:5]}-{number}"


def manifest(job: ElasticJob, kept: Record) -> Manifest:
    """Return the ScalePlan of a decision."""
    change = msgspec.convert(kept.sizes, Sizes).change
    change = replace(change, reason=kept.reason, algorithm=kept.algorithm)
    owner = owner_reference(job, ELASTICJOB, controller=False)
    return plan_manifest(kept.plan, job.key, change.manifest(), owner, manual=False)
