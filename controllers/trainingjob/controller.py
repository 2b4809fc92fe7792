"""The controller of TrainingJobs: read, decide, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from elasticjob.api.paddle.trainingjob import TRAININGJOB, TrainingJob
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.triggers import same_name, those_of
from elasticjob.controllers.trainingjob.decide import Seen, decide, status_of
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key

MANAGER: Final = "elasticjob-trainingjobs"


@dataclass(frozen=True)
class TrainingJobReconciler:
    """One pass over one TrainingJob."""

    trainings: Cache[TrainingJob]
    jobs: Cache[ElasticJob]
    applier: Applier
    now: Callable[[], datetime]

    async def __call__(self, key: Key) -> Result:
        """Bring the ElasticJob of a TrainingJob to what it says, and its status to what that does."""
        job = self.trainings.get(key)
        if job is None:
            return Result.done()
        seen = Seen(job, self.jobs.get(key))
        plan = await self.applier.attempt(job, decide(seen))
        status = status_of(seen, plan, self.now()).manifest()
        await self.applier.write_status(TRAININGJOB, job, status, job.status.manifest())
        return Result.again(plan.again_in)


def controller(reconcile: TrainingJobReconciler, concurrency: int) -> Controller:
    """Return the controller, with the changes that cause a pass."""

    def is_known(key: Key) -> bool:
        return reconcile.trainings.meta(key) is not None

    return Controller(
        "trainingjob",
        reconcile,
        for_=TRAININGJOB,
        watches=((ELASTICJOB, those_of(is_known, same_name)),),
        concurrency=concurrency,
    )
