"""The controller of ScalePlans: read, decide, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.admission import Admission, as_admitted, with_queue
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.parts.owners import controller_uid
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.plan import SOON
from elasticjob.controllers.passes.triggers import job_of, job_of_plan, more_than_reports, same_name, those_of
from elasticjob.controllers.scaleplan.decide import Seen, decide
from elasticjob.kube.cache.store import Change
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.controller.predicates import any_of, generation_changed
from elasticjob.kube.objects.kinds import Key

MANAGER: Final = "elasticjob-plans"


@dataclass(frozen=True)
class PlansReconciler:
    """One pass over the plans of one job; the key is the job's. Time and the cluster are arguments."""

    caches: Caches
    applier: Applier
    counters: Counters
    now: Callable[[], datetime]
    admission: Admission | None = None

    async def __call__(self, key: Key) -> Result:
        """Bring the plans of one job one step further."""
        seen = self.observe(key)
        if seen is None:
            return Result.done()
        self.counters.note_plans(key, seen.plans)
        if await self._is_behind(key, seen):
            return Result.again(SOON)
        plan = decide(seen, self.now())
        await self.applier.perform(seen.job or seen.plans[0], plan)
        return Result.again(plan.again_in)

    async def _is_behind(self, key: Key, seen: Seen) -> bool:
        """Whether the cache of jobs is behind that of plans: a new one is for the job that is there now."""
        if seen.job is None:
            return bool(seen.open) and await self.applier.has(ELASTICJOB, key)
        is_new = any(plan.status.phase is None for plan in seen.open)
        leaves = seen.job.metadata.deletion_timestamp is not None
        return is_new and not leaves and not await self.applier.is_there(ELASTICJOB, seen.job)

    def observe(self, key: Key) -> Seen | None:
        """Return all that a decision rests on, None if the job has neither plans nor sizes."""
        plans, job = self.caches.plans_of(key), self.caches.jobs.get(key)
        grant = self.admission.grant(job) if self.admission else None
        resource = self.caches.resources.get(key)
        if not plans and (job is None or resource is None):
            return None
        if job is not None and resource is not None and controller_uid(resource.metadata) != job.metadata.uid:
            resource = None
        lives = self.caches.lives(resource.metadata.uid, self.now()) if resource and grant else ()
        seen = Seen(as_admitted(job, grant) if job else None, resource, plans, grant, lives)
        if job is None or grant is None or self.admission is None:
            return seen
        return replace(seen, never=partial(self.admission.never, job))


def controller(reconcile: PlansReconciler, concurrency: int) -> Controller:
    """Return the controller, with the changes that cause a pass."""

    def planned(key: Key) -> bool:
        job, admission = reconcile.caches.jobs.get(key), reconcile.admission
        waits = admission is not None and job is not None and bool(admission.queue(job))
        return waits or bool(reconcile.caches.plans_of(key))

    def of_a_planned(change: Change) -> bool:
        return any(planned(item.key) for item in (change.old, change.new) if item)

    quota = ((WORKLOAD, those_of(planned, job_of)),) if reconcile.admission else ()
    return Controller(
        "scaleplan",
        with_queue(reconcile, reconcile.admission),
        for_=JOBRESOURCE,
        watches=(
            (SCALEPLAN, job_of_plan),
            (ELASTICJOB, same_name, more_than_reports),
            *quota,
        ),
        when=any_of(generation_changed, of_a_planned),  # an autoscaler asks without a plan
        concurrency=concurrency,
    )
