"""The controller of JobResources, which has the pods of a job: read, decide, write, status last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, OptimizeMode
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.requests import is_request
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.jobresource import request
from elasticjob.controllers.jobresource.budget import Budget, budget, written
from elasticjob.controllers.jobresource.decide import CONVERGING, Seen, decide
from elasticjob.controllers.jobresource.room import EVERY, Room, Rooms, learns
from elasticjob.controllers.jobresource.status import alteration_event, describe
from elasticjob.controllers.kueue.admission import Admission, as_admitted, with_queue
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.controllers.parts.owners import controller_uid
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.many_starts import Rush
from elasticjob.controllers.passes.observe import Caches, Machines
from elasticjob.controllers.passes.orphans import Orphans
from elasticjob.controllers.passes.plan import NAME_TAKEN, REFUSED, SOON, Action, Create, Note, Plan
from elasticjob.controllers.passes.rules import HANDS_OFF
from elasticjob.controllers.passes.status_pace import News
from elasticjob.controllers.passes.triggers import (
    job_of,
    job_of_plan,
    jobs_on,
    life_changed,
    machine_changed,
    more_than_reports,
    request_of,
    same_name,
    settling_time,
    those_of,
)
from elasticjob.controllers.passes.upkeep import Upkeep
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.controller.predicates import any_of
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import NODE, POD, SERVICE

MANAGER: Final = "elasticjob-nodes"
SETTLE: Final = timedelta(milliseconds=50)
"""Pods that are lost together are replaced together."""


@dataclass(frozen=True)
class NodesReconciler:
    """One pass over the nodes of one job. Time and the cluster are arguments."""

    caches: Caches
    applier: Applier
    orphans: Orphans
    now: Callable[[], datetime]
    news: News = field(default_factory=News)
    rooms: Rooms | None = None
    admission: Admission | None = None
    rush: Rush = field(default_factory=Rush)
    upkeep: Upkeep = field(default_factory=Upkeep)
    log_format: str = ""

    async def __call__(self, key: Key) -> Result:
        """Bring the pods of one JobResource closer to its spec."""
        asking = self.caches.resources.get(key)
        if asking is not None and is_request(asking):
            return await self.answer(asking)
        seen = self.observe(key)
        if seen is None:
            self.news.forget(key)
            self.upkeep.forget(key)
            return Result.done()
        machines = Machines(self.caches.machines)
        seen = replace(seen, lives=await self.applier.confirm(seen.lives, machines))
        about = seen.job or seen.resource  # events about nodes are recorded where people look: at the job
        now = self.now()  # once: what is decided, and what is said of it, are of one moment
        plan = decide(seen, now)
        if _makes_anew(seen, plan) and not await self.applier.is_there(JOBRESOURCE, seen.resource):
            return Result.done()  # the cache is behind: the JobResource is gone, and its pods with it
        plan = await self.applier.attempt(about, plan)
        if plan.reason in HANDS_OFF:
            return Result.again(plan.again_in)
        if seen.job is not None:  # else the job's own pass collects this JobResource and its pods
            await self.orphans.collect(key, JOBRESOURCE, plan.obstacle)
        if plan.reason == CONVERGING and plan.actions and self.news.leave(key):
            return Result.again(plan.again_by(SOON).again_in)  # the pass that sees these writes reports them
        room = self.room(seen)
        plan = plan.again_by(EVERY) if room else plan
        least = None if any(map(_is_needed, plan.actions)) else budget(seen, now)
        plan = plan.again_by(least.again_in if least else None)
        old = seen.resource.status.manifest()
        described = describe(seen, plan, now, room, least)
        status = described.manifest()
        began = seen.resource.metadata.creation_timestamp if plan.reason == CONVERGING else None
        if left := self.rush.wait(began, now):
            return Result.again(plan.again_by(left).again_in)
        if held := self.news.hold(key, old, status, now):
            return Result.again(plan.again_by(held).again_in)
        lost = least is not None and await self._lost(seen, least)
        if seen.job and least and (lost or least.least != old.get("minAvailable")):
            told = await self.applier.attempt(about, Plan(groups=((written(seen.job, least),),)))
            if told.reason == NAME_TAKEN and told.obstacle is None:  # that of a predecessor goes soon
                self.applier.tell(about, Note(told.reason, f"evictions are not held: {told.sentence}", True))
            if told.obstacle is not None:
                await self.orphans.collect(key, JOBRESOURCE, told.obstacle)
            if told.reason in (REFUSED, NAME_TAKEN):
                status = describe(seen, plan, now, room).manifest()
                plan = plan.again_by(told.again_in)
        await self.applier.write_status(JOBRESOURCE, seen.resource, status, old)
        if note := alteration_event(seen.resource.status, described):
            self.applier.tell(about, note)
        due = self.upkeep.due_in(key, now) if least else None  # without a budget nothing is looked up
        return Result.again(plan.again_by(due).again_in)

    async def answer(self, resource: JobResource) -> Result:
        """Have a request of a user or a tool carried out, and say what became of it."""
        job = Key(resource.metadata.namespace, resource.spec.selector.name)
        seen = request.Seen(resource, self.caches.jobs.get(job), self.caches.plans_of(job))
        now = self.now()
        plan = await self.applier.attempt(resource, request.decide(seen, now))
        if plan.reason not in HANDS_OFF:
            status = request.describe(seen, plan, now).manifest()
            await self.applier.write_status(JOBRESOURCE, resource, status, resource.status.manifest())
        return Result.again(plan.again_in)

    async def _lost(self, seen: Seen, least: Budget) -> bool:
        """Whether others have deleted the job's budget, when that is looked up."""
        about = seen.resource.metadata
        if seen.job is None or not self.upkeep.is_due(seen.job.key, about.creation_timestamp, self.now()):
            return False
        return bool(await self.applier.absent((written(seen.job, least),)))

    def room(self, seen: Seen) -> Room | None:
        """Return how much room cluster and queue have for a job that may grow; None for others."""
        job, now = seen.job, self.now()
        if job is None or self.rooms is None or job.spec.optimize_mode is OptimizeMode.MANUAL:
            return None
        found = self.rooms.of(job, seen.resource, now) if learns(job, seen.resource) else None
        idle = self.admission.room(job, now) if self.admission and not job.spec.suspend else None
        if idle is None:
            return found
        roles = {role: min(n, idle.get(role, 0)) for role, n in found.roles.items()} if found else {}
        return replace(found or Room(), roles=roles, quota=idle)

    def observe(self, key: Key) -> Seen | None:
        """Return all that a decision rests on, None if the JobResource is gone."""
        resource = self.caches.resources.get(key)
        if resource is None:
            return None
        job = self.caches.jobs.get(key)
        if job is not None and job.metadata.uid != controller_uid(resource.metadata):
            job = None
        lives = self.caches.lives(resource.metadata.uid, self.now())
        grant = self.admission.grant(job) if self.admission else None
        return Seen(
            resource=resource,
            job=as_admitted(job, grant) if job else None,
            grant=grant,
            lives=lives,
            master=self.caches.master_address(job) if job else "",
            plans=self.caches.plans_of(key),
            masters=self.caches.lives(job.metadata.uid, self.now()) if job else (),
            largest=self.caches.largest(job, lives) if job else {},
            log_format=self.log_format,
        )


def _is_needed(action: Action) -> bool:
    """Whether this is a pod of a node that the job is to have: it counts in the pass that sees it."""
    return isinstance(action, Create) and not action.optional


def _makes_anew(seen: Seen, plan: Plan) -> bool:
    """Whether the plan creates a node that has no pods, though the status counts some."""
    if not any(isinstance(action, Create) for action in plan.actions):
        return False
    counted = seen.resource.status.replica_statuses.values()
    return any(role.current for role in counted) and any(
        not node.lives for node in seen.target_nodes.values()
    )


def controller(reconcile: NodesReconciler, concurrency: int) -> Controller:
    """Return the controller, with the changes that cause a pass."""

    def there(key: Key) -> bool:
        return reconcile.caches.resources.meta(key) is not None

    quota = ((WORKLOAD, those_of(there, job_of)),) if reconcile.admission else ()
    return Controller(
        "jobresource",
        with_queue(reconcile, reconcile.admission),
        for_=JOBRESOURCE,
        watches=(
            (POD, those_of(there, job_of), life_changed(reconcile.caches)),
            (ELASTICJOB, those_of(there, same_name), more_than_reports),
            (SERVICE, those_of(there, job_of)),
            (SCALEPLAN, those_of(there, job_of_plan)),
            (SCALEPLAN, those_of(there, request_of)),
            (NODE, jobs_on(reconcile.caches), machine_changed(reconcile.caches)),
            *quota,
        ),
        when=any_of(more_than_reports, reconcile.news.contradicts),
        concurrency=concurrency,
        settle=settling_time(SETTLE, reconcile.caches),
    )
