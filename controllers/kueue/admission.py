"""What the controllers of jobs ask: may the job run, in which Workloads, and is it its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.controllers.kueue.demand import QueueRequest, is_slice
from elasticjob.controllers.kueue.grant import Grant, flavors_of
from elasticjob.controllers.kueue.kinds import Jobs
from elasticjob.controllers.kueue.queues import Queues
from elasticjob.controllers.kueue.workload import WORKLOAD, Workload
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.plan import SOON, soonest
from elasticjob.kube.controller.controller import Reconcile, Result
from elasticjob.kube.crd.model import CustomResource
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD

MOST_LOOKED_AT = 64
"""Nodes more of a role for which quota is looked for at most."""


@dataclass(frozen=True)
class Admission:
    """Queues, as far as one kind of jobs is concerned."""

    queues: Queues
    jobs: Jobs

    def queue(self, job: CustomResource) -> str:
        """Return the LocalQueue of a job, "" for none: while it has quota, the one it has it of."""
        if not self.queues.on:
            return ""
        mine = () if self.jobs.is_suspended(job) else self.queues.of(job.key, job.metadata.uid)
        base = next((each for each in mine if each.has_quota and not is_slice(each)), None)
        return base.spec.queue_name if base else self.jobs.queue(job)

    def demand(self, job: CustomResource, planned: JobResource | None = None) -> QueueRequest:
        """Return what a job asks of its queue, or would with another JobResource."""
        return self._demand_of(self.queue(job), job, planned)

    def _demand_of(self, queue: str, job: CustomResource, planned: JobResource | None = None) -> QueueRequest:
        return replace(self.jobs.demand(job, planned), queue=queue)

    def grant(self, job: CustomResource | None) -> Grant | None:
        """Return what its queue gives to a job; None for a job that is in no queue."""
        if job is None or not (queue := self.queue(job)):
            return None
        return self.queues.grant(self._demand_of(queue, job))

    def never(self, job: CustomResource, planned: JobResource) -> str:
        """Return why its queue could not ever give a job what a plan asks for, "" where it could."""
        queue = self.queue(job)
        now, then = self._demand_of(queue, job), self._demand_of(queue, job, planned)
        return "" if then.base == now.base else self.queues.never(then)

    def taken_back(self, job: CustomResource) -> frozenset[str]:
        """Return the names of the Workloads of a job whose pods are to leave."""
        found = self.queues.of(job.key, job.metadata.uid) if self.queues.on else ()
        kept = {
            each.chain for each in found if each.is_admitted
        }  # one that was replaced leaves, its pods stay
        return frozenset(each.chain for each in found if each.leaving and each.chain not in kept)

    async def shows_all(self, key: Key, now: datetime, applier: Applier) -> bool:
        """Whether the caches have the pods and Workloads of a job, as far as that is in doubt.

        After a pass that failed, the answer to a write may have been lost: a second pod would have no place.
        After a pass that returned quota, the cache may still show that quota: a pod would have no place.
        """
        doubt = (self.jobs.kind.name, key)
        if doubt in self.queues.doubtful:
            there = await applier.read_by_labels(POD, key.namespace, self.jobs.selector(key))
            known = {life.uid for life in self.jobs.lives(key, None, now)}
            if any(life.uid not in known for life in self.jobs.lives(key, there, now)):
                return False
            held = await applier.read_by_labels(WORKLOAD, key.namespace, f"{LABEL_JOB}={key.name}")
            if _versions(held) != _versions(self.queues.of(key)):
                return False
            self.queues.doubtful.discard(doubt)
        return True

    def room(self, job: CustomResource, now: datetime) -> dict[str, int] | None:
        """Return how many more nodes of each role idle quota is for; None for a job that is in no queue."""
        if not (name := self.queue(job)):
            return None
        demand, (market, _, crowded, _) = self._demand_of(name, job), self.queues.look(now)
        queue = self.queues.cluster_queue(job.key, demand.queue)
        mine, found = self.queues.of(job.key, job.metadata.uid), {}
        for role in demand.roles:
            keep = {} if demand.mixed else flavors_of(role.name, mine)
            pods, left, count = (role.pods(1, market.labels(keep.values())),), market, 0
            while queue not in crowded and count < MOST_LOOKED_AT:
                if (amounts := left.fitting(queue, pods, keep)) is None:
                    break
                left, count = left.with_use(queue, amounts), count + 1
            found[role.name] = count
        return found


def _versions(workloads: Iterable[Workload]) -> dict[str, str]:
    return {each.metadata.uid: each.metadata.resource_version for each in workloads}


class Pass(Protocol):
    """A reconciler of jobs."""

    @property
    def applier(self) -> Applier: ...

    @property
    def now(self) -> Callable[[], datetime]: ...

    async def __call__(self, key: Key) -> Result: ...


def with_queue(reconcile: Pass, admission: Admission | None, *, in_doubt: bool = False) -> Reconcile:
    """Return a reconciler of jobs, where there are queues: one pass over a job runs at a time, of whichever
    controller, and unless `in_doubt`, none runs where caches may not show all of the job."""
    if admission is None:
        return reconcile

    async def run(key: Key) -> Result:
        async with admission.queues.turn(admission.jobs.kind.name, key, admission.jobs.find):
            if not in_doubt and not await admission.shows_all(key, reconcile.now(), reconcile.applier):
                return Result.again(SOON)
            result = await reconcile(key)
        return Result.again(soonest((result.again_in, admission.queues.ask_again_in)))

    return run


def as_admitted(job: ElasticJob, grant: Grant | None) -> ElasticJob:
    """Return a job as its controllers treat it: as suspended, while its queue does not admit it."""
    if grant is None or grant.admitted or job.spec.suspend:
        return job
    return job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
