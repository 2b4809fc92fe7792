"""The controller of ElasticJobs: read, decide, write, status last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.kueue import queue_of
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.elasticjob.decide import BEGINNINGS, deadline_in, decide
from elasticjob.controllers.elasticjob.gang import looks_for_an_api
from elasticjob.controllers.elasticjob.master import Provision
from elasticjob.controllers.elasticjob.measured import master_ready, restarts, starvation
from elasticjob.controllers.elasticjob.obstacles import REFUSALS, needs, obstacles
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.elasticjob.status import describe
from elasticjob.controllers.elasticjob.upkeep import has_outside_caches, outside_caches
from elasticjob.controllers.kueue.admission import Admission, as_admitted, with_queue
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.parts.gangs.choice import possible
from elasticjob.controllers.parts.gangs.served import GangApis
from elasticjob.controllers.parts.owners import controller_uid
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.conclusions import is_over
from elasticjob.controllers.passes.many_starts import Rush, only_begins
from elasticjob.controllers.passes.observe import Caches, Machines
from elasticjob.controllers.passes.orphans import Orphans
from elasticjob.controllers.passes.plan import SOON, Create, Note, Plan
from elasticjob.controllers.passes.rules import HANDS_OFF
from elasticjob.controllers.passes.status_pace import News
from elasticjob.controllers.passes.triggers import (
    address_changed,
    has_gone,
    job_of,
    job_of_plan,
    jobs_on,
    life_changed,
    machine_changed,
    more_than_reports,
    settling_time,
)
from elasticjob.controllers.passes.upkeep import Upkeep
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.controller.predicates import any_of
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import NODE, POD, SERVICE

MANAGER: Final = "elasticjob-job"
SETTLE: Final = timedelta(milliseconds=100)
"""The pods of a job start and end together: one pass, and one status write, covers them all."""


@dataclass(frozen=True)
class JobReconciler:
    """One pass over one job. Time, randomness and the cluster are arguments."""

    caches: Caches
    applier: Applier
    orphans: Orphans
    provision: Provision
    counters: Counters
    now: Callable[[], datetime]
    token: Callable[[str], str]
    """Returns the token of the job with a uid."""
    served: GangApis
    admission: Admission | None = None
    news: News = field(default_factory=News)
    rush: Rush = field(default_factory=Rush)
    upkeep: Upkeep = field(default_factory=Upkeep)

    async def __call__(self, key: Key) -> Result:
        """Bring one ElasticJob closer to its spec."""
        seen = self.observe(key)
        if seen is None:
            self.counters.forget(key)
            self.news.forget(key)
            self.rush.saw(key, self.now(), begins=False)
            self.upkeep.forget(key)
            return Result.again(await self.orphans.collect(key))
        self.counters.note_phase(seen.job, self.now())
        self._say_findings(seen.job)
        machines = Machines(self.caches.machines)
        seen = replace(seen, masters=await self.applier.confirm(seen.masters, machines))
        now = self.now()  # once: what is slow by now has been looked up
        seen = await self._with_absent(await self._with_missing(seen, now), now)
        if looks_for_an_api(seen):
            seen = replace(seen, served=await self.served.look(possible(seen.job)))
        plan = decide(seen, now).again_by(self.upkeep.due_in(key, now))
        self.rush.saw(key, now, begins=_begins(seen, plan))
        if _makes_anew(seen, plan) and not await self.applier.is_there(ELASTICJOB, seen.job):
            return Result.done()  # the cache is behind: the job is gone, and its objects with it
        try:
            plan = await self.applier.attempt(seen.job, plan)
        except NotFound:  # of the API of a gang scheduler, too
            self.served.forget()
            raise
        if plan.reason in HANDS_OFF:
            return Result.again(plan.again_by(await self.orphans.collect(key)).again_in)
        self.counters.note_look(key, master_ready(seen), starvation(seen), restarts(seen))
        left = await self.orphans.collect(key, ELASTICJOB, plan.obstacle)
        if plan.reason in BEGINNINGS and self.news.leave(key):  # the pass that sees these writes reports them
            return Result.again(plan.again_by(left).again_by(SOON).again_in)
        held = await self._say(seen, plan, now)
        return Result.again(plan.again_by(left).again_by(held).again_in)

    def observe(self, key: Key) -> Seen | None:
        """Return all that a decision rests on, None if the job is gone."""
        job = self.caches.jobs.get(key)
        if job is None:
            return None
        resource = self.caches.resources.get(key)
        ours = resource is not None and controller_uid(resource.metadata) == job.metadata.uid
        now = self.now()
        lives = self.caches.lives(resource.metadata.uid, now) if resource is not None and ours else ()
        grant = self.admission.grant(job) if self.admission else None
        address = self.caches.master_address(job)
        was_known = address == "" and resource is not None and ours
        return Seen(
            job=as_admitted(job, grant),
            grant=grant,
            queueless=queue_of(job) if self.admission and not self.admission.queues.on else "",
            resource=resource,
            masters=self.caches.lives(job.metadata.uid, now),
            lives=lives,
            plans=self.caches.plans_of(key),
            provision=self.provision,
            fresh_token=self.token(job.metadata.uid),
            address=address,
            unaimed=self.caches.idle_service(job),
            known_address=self.caches.known_address(resource.metadata.uid) if resource and was_known else "",
            names_from=self.caches.names_from(key),
            largest=self.caches.largest(job, lives),
        )

    async def _with_missing(self, seen: Seen, now: datetime) -> Seen:
        """Return what was seen, where pods that are slow to start tell which objects are missing."""
        slow = timedelta(0) if deadline_in(seen, now) == timedelta(0) else None  # it ends now, and says why
        if not (asked := needs(seen, now, slow)):
            return seen
        missing = await self.applier.missing(seen.job.metadata.namespace, asked)
        masters, lives = (tuple(each.without(missing) for each in of) for of in (seen.masters, seen.lives))
        return replace(seen, masters=masters, lives=lives)

    async def _with_absent(self, seen: Seen, now: datetime) -> Seen:
        """Return what was seen with those of the job's objects that are gone, when they are looked up."""
        if seen.resource is None or not has_outside_caches(seen):
            self.upkeep.forget(seen.job.key)
            return seen
        key, made = seen.job.key, seen.resource.metadata.creation_timestamp
        waits = seen.gang is not None and any(life.waiting for life in seen.lives)
        if not self.upkeep.is_due(key, made, now, in_trouble=waits or bool(needs(seen, now))):
            return seen
        return replace(seen, absent=await self.applier.absent(outside_caches(seen)))

    async def _say(self, seen: Seen, plan: Plan, now: datetime) -> timedelta | None:
        """Write the status, then the event of the job's end or of what newly holds it back.

        Returns how long the status may wait, if it is not written now.
        """
        status = describe(seen, plan, now)
        new, old = status.manifest(), seen.job.status.model_copy(update={"training": None}).manifest()
        if only_begins(old, new) and (left := self.rush.wait(seen.job.metadata.creation_timestamp, now)):
            return left
        if held := self.news.hold(seen.job.key, old, new, now):
            return held
        if await self.applier.write_status(ELASTICJOB, seen.job, new, old):
            self.counters.saw(seen.job, status)
            if plan.outcome is not None:
                self.applier.tell(
                    seen.job, Note(plan.reason, plan.sentence, warning=not plan.outcome.succeeded)
                )
            elif status.reason != seen.job.status.reason:
                self._say_what_holds_it(seen, plan, now)
        return None

    def _say_findings(self, job: ElasticJob) -> None:
        """Record an event for each new finding of the job's master: a hang, a loss that is not finite."""
        training = job.status.training
        for finding, times in self.news.findings(job.key, training.findings if training else (), self.now()):
            self.applier.tell(job, Note(finding.reason, finding.message, warning=True, times=times))

    def _say_what_holds_it(self, seen: Seen, plan: Plan, now: datetime) -> None:
        """Record the first obstacle as an event; a refused write has its own already."""
        for obstacle in obstacles(seen, plan, now)[:1]:
            if obstacle.reason not in REFUSALS and not seen.job.spec.suspend:
                self.applier.tell(seen.job, Note(obstacle.reason, obstacle.told, warning=True))


def _begins(seen: Seen, plan: Plan) -> bool:
    """Whether nodes of the job are about to get their first pods."""
    if seen.job.spec.suspend or is_over(seen.job) or plan.outcome is not None:
        return False
    return seen.resource is None or not all(node.lives for node in seen.target_nodes)


def _makes_anew(seen: Seen, plan: Plan) -> bool:
    """Whether the plan creates objects that this job probably had before."""
    return bool(seen.job.status.phase) and any(isinstance(action, Create) for action in plan.actions)


def controller(reconcile: JobReconciler, concurrency: int) -> Controller:
    """Return the controller, with the changes that cause a pass."""
    caches, quota = reconcile.caches, ((WORKLOAD, job_of),) if reconcile.admission else ()
    return Controller(
        "elasticjob",
        with_queue(reconcile, reconcile.admission),
        for_=ELASTICJOB,
        owns=(JOBRESOURCE,),
        watches=(
            (POD, job_of, any_of(life_changed(caches), address_changed(caches.pods))),
            (SCALEPLAN, job_of_plan),
            (NODE, jobs_on(caches), machine_changed(caches)),
            (SERVICE, job_of, has_gone),
            *quota,
        ),
        concurrency=concurrency,
        when=any_of(more_than_reports, reconcile.news.contradicts),
        settle=settling_time(SETTLE, caches),
        new_first=True,
    )
