"""What the controllers of jobs ask: may the job run, in which Workloads, and is it its turn."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.controllers.kueue.demand import Demand
from elasticjob.controllers.kueue.grant import Grant, flavors_of
from elasticjob.controllers.kueue.kinds.elasticjob import Jobs
from elasticjob.controllers.kueue.queues import Queues
from elasticjob.controllers.kueue.workload import WORKLOAD, Workload
from elasticjob.controllers.passes.apply import Applier
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

    def grant(self, job: CustomResource | None) -> Grant | None:
        """Return what its queue gives to a job; None for a job that is in no queue."""
        if job is None or not self.queues.admits(job):
            return None
        return self.queues.grant(self._demand(job))

    def _demand(self, job: CustomResource) -> Demand:
        return replace(self.jobs.demand(job), queue=self.queues.queue(job))

    def taken_back(self, job: CustomResource) -> frozenset[str]:
        """Return the names of the Workloads of a job whose pods are to leave."""
        found = self.queues.of(job.key, job.metadata.uid) if self.queues.on else ()
        return frozenset(each.metadata.name for each in found if each.leaving)

    async def shows_all(self, key: Key, now: datetime, applier: Applier) -> bool:
        """Whether the caches have the pods and Workloads of a job, as far as that is in doubt.

        After a pass that failed, the answer to a write may have been lost: a second pod would have no place.
        After a pass that returned quota, the cache may still show that quota: a pod would have no place.
        """
        doubt = (self.jobs.kind.name, key)
        if doubt in self.queues.doubtful:
            there = await applier.listed(POD, key.namespace, self.jobs.selector(key))
            known = {life.uid for life in self.jobs.lives(key, None, now)}
            if any(life.uid not in known for life in self.jobs.lives(key, there, now)):
                return False
            held = await applier.listed(WORKLOAD, key.namespace, f"{LABEL_JOB}={key.name}")
            if _versions(held) != _versions(self.queues.of(key)):
                return False
            self.queues.doubtful.discard(doubt)
        return True

    def room(self, job: CustomResource, now: datetime) -> dict[str, int] | None:
        """Return how many more nodes of each role idle quota is for; None for a job that is in no queue."""
        if not self.queues.admits(job):
            return None
        demand, (market, _, crowded, _) = self._demand(job), self.queues.look(now)
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


def turn(admission: Admission | None, key: Key) -> AbstractAsyncContextManager[None]:
    """Let one pass over a job run at a time, where there are queues."""
    if admission is None:
        return nullcontext()
    return admission.queues.turn(admission.jobs.kind.name, key, admission.jobs.find(key))


def as_admitted(job: ElasticJob, grant: Grant | None) -> ElasticJob:
    """Return a job as its controllers treat it: as suspended, while its queue does not admit it."""
    if grant is None or grant.admitted or job.spec.suspend:
        return job
    return job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True})})
