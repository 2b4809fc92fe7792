"""The controller of queued jobs: read, decide, write; one for each kind of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from elasticjob.controllers.kueue.admission import Admission, with_queue
from elasticjob.controllers.kueue.decide import IDLE, Seen, changes_class, decide, frees, grows
from elasticjob.controllers.kueue.demand import QueueRequest, domains, is_slice, owner_job
from elasticjob.controllers.kueue.kinds import Jobs
from elasticjob.controllers.kueue.queues import Queues, jobs_with_slices, kind_of
from elasticjob.controllers.kueue.replacement import Holdings
from elasticjob.controllers.kueue.workload import (
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    PRIORITY_CLASS_KIND,
    WORKLOAD,
    WORKLOAD_PRIORITY_CLASS,
    Workload,
)
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.plan import LATER, Note
from elasticjob.controllers.passes.triggers import same_name
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.controller.predicates import generation_changed
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD, ObjectMeta

MANAGER: Final = "elasticjob-queue"
SETTLE: Final = timedelta(milliseconds=50)
"""Pods of a job become ready, and end, together."""


@dataclass(frozen=True)
class QueueReconciler:
    """One pass over the Workloads of one job."""

    client: Client
    admission: Admission
    applier: Applier
    now: Callable[[], datetime]

    async def __call__(self, key: Key) -> Result:
        """Bring the Workloads of one job to what it asks, and return what it does not use."""
        return await (self._run(key) if self.queues.on else self._let_go(key))

    @property
    def queues(self) -> Queues:
        """Kueue's objects."""
        return self.admission.queues

    @property
    def jobs(self) -> Jobs:
        """The jobs of this kind."""
        return self.admission.jobs

    async def _let_go(self, key: Key) -> Result:
        """Keep no Workload from going with its definition."""
        workloads = self.queues.of(key)
        if not workloads:
            return Result.done()
        plan = decide(Seen(None, workloads), self.now())
        plan = await self.applier.attempt(self._gone(key), plan)
        return Result.again(plan.again_in)

    async def _run(self, key: Key) -> Result:
        seen, job = await self._observe(key)
        if not seen.workloads and seen.demand is None:
            return Result.done()
        plan = decide(seen, self.now())
        if grows(plan) and self.queues.look_anew():
            seen, job = await self._observe(key)
            plan = decide(seen, self.now())
        if frees(plan):  # what memory shows may be old: the server itself has the last word about pods
            pods = await self.client.list(POD, key.namespace, labels=self.jobs.selector(key))
            seen = replace(seen, lives=self.jobs.lives(key, pods, self.now()))
            plan = decide(seen, self.now())
            if not frees(plan):  # of a pod that memory lacks no end is told
                plan = plan.again_by(IDLE)
        if frees(plan):
            self.queues.doubtful.add((self.jobs.kind.name, key))
        if job is not None and seen.unknown_class:
            sentence = f"there is no {seen.unknown_class}: create it, or name another"
            self.applier.tell(job, Note("PriorityClassMissing", sentence, warning=True))
            plan = plan.again_by(LATER)
        plan = await self.applier.attempt(job or self._gone(key), plan)
        again = self.queues.look(self.now()).again if seen.slices else None
        return Result.again(plan.again_by(again).again_in)

    async def _observe(self, key: Key) -> tuple[Seen, CustomResource | None]:
        now, job = self.now(), self.jobs.find(key)
        every = self.queues.of(key)
        mine = tuple(each for each in every if kind_of(each) == self.jobs.kind.name)
        gone = job is None or job.metadata.deletion_timestamp is not None or not self.admission.queue(job)
        lives = () if gone and not mine else self.jobs.lives(key, None, now)
        if gone or job is None:
            return Seen(None, mine, lives), job
        demand = self.admission.demand(job)
        look, queue = self.queues.look(now), self.queues.cluster_queue(key, demand.queue)
        if demand.prebuilt and (made := self.queues.prebuilt(demand)):
            mine = (made, *mine)
        base = Holdings(demand, mine).base
        priority, unknown = base.spec.priority if base is not None else None, ""
        if base is None or changes_class(demand, base):
            priority, unknown = await self._priority(demand)
        seen = Seen(
            demand,
            mine,
            lives,
            market=look.market,
            queue=queue,
            reclaim=look.reclaim,
            crowded=queue in look.crowded,
            priority=priority,
            unknown_class=unknown,
            domains=domains(demand, lives, self.jobs.labels),
        )
        return seen, job

    def _gone(self, key: Key) -> CustomResource:
        """Return a job that is no more, for what is told of it."""
        about = ObjectMeta(name=key.name, namespace=key.namespace)
        found: CustomResource = self.jobs.kind.model.model_construct(metadata=about)
        return found

    async def _priority(self, demand: QueueRequest) -> tuple[int | None, str]:
        """Return the value of a job's priority class, None without one; or the class that there is not."""
        kind, name = demand.priority_class
        if not name:
            return None, ""
        wanted = WORKLOAD_PRIORITY_CLASS if kind == "WorkloadPriorityClass" else PRIORITY_CLASS_KIND
        found = await self.client.find(wanted, name)
        return (found.value, "") if found else (None, f"{kind} {name}")


def controller(reconcile: QueueReconciler, concurrency: int) -> Controller:
    """Return the controller, with the changes that cause a pass."""
    queues, jobs, matters = reconcile.queues, reconcile.jobs, reconcile.jobs.matters()

    def worth(change: Change) -> bool:
        return queues.on and matters(change)

    def concerned(workload: Workload) -> Iterable[Key]:
        """The job of a Workload; and where one waits or returns quota, all jobs that could make room."""
        if name := owner_job(workload):
            yield Key(workload.metadata.namespace, name)
        if (workload.pending or workload.returning) and not is_slice(workload):
            yield from jobs_with_slices(queues.workloads, jobs.kind.name)

    def all_that_could_give(_: object) -> Iterable[Key]:
        """All jobs with slices: other quotas, or a queue that is started, let waiting Workloads in."""
        return jobs_with_slices(queues.workloads, jobs.kind.name)

    sizes = ((kind, same_name, generation_changed) for kind in jobs.sizes)
    quota = ((kind, all_that_could_give, generation_changed) for kind in (LOCAL_QUEUE, CLUSTER_QUEUE, COHORT))
    return Controller(
        f"queue-{jobs.kind.plural}",
        with_queue(reconcile, reconcile.admission, in_doubt=True),
        for_=jobs.kind,
        watches=((WORKLOAD, concerned), (POD, jobs.job_of, worth), *sizes, *quota),
        concurrency=concurrency,
        settle=SETTLE,
    )
