"""The controller of DIJobs: read, decide, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from elasticjob.api.diengine.access import token_of
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.dijob.decide import NOT_CREATED, Terms, decide, token_secret
from elasticjob.controllers.dijob.seen import Caches, keys_of, observe
from elasticjob.controllers.dijob.status import status_of, step
from elasticjob.controllers.kueue.admission import Admission, with_queue
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.controllers.metrics import Phases
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.plan import NAME_TAKEN, Note
from elasticjob.controllers.passes.triggers import job_of, those_of
from elasticjob.controllers.passes.upkeep import Upkeep
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD, SERVICE

MANAGER: Final = "elasticjob-dijobs"


@dataclass(frozen=True)
class DIJobReconciler:
    """One pass over one DIJob."""

    caches: Caches
    applier: Applier
    now: Callable[[], datetime]
    server: Server
    phases: Phases
    key: Callable[[], bytes] = bytes
    """Returns the key of the tokens of jobs; b"": they have none."""
    graceful: bool = False
    admission: Admission | None = None
    upkeep: Upkeep = field(default_factory=Upkeep)

    async def __call__(self, key: Key) -> Result:
        """Bring the coordinator and the services of a job to what they should be, and write its status."""
        seen = observe(self.caches, key, self.admission)
        if seen is None:
            self.phases.show(key, None)
            self.upkeep.forget(key)
            return Result.done()
        self.phases.show(key, seen.job.status.phase)
        terms, about = self._terms(seen.job), seen.job.metadata
        if terms.token and self.upkeep.is_due(key, about.creation_timestamp, self.now()):
            lost = await self.applier.absent((token_secret(seen.job, terms.token),))
            seen = replace(seen, lost_token=bool(lost))
        plan = await self.applier.attempt(seen.job, decide(seen, terms), refused=NOT_CREATED)
        for note in plan.details if not plan.actions else ():
            self.applier.tell(seen.job, note)
        taken = plan.sentence if plan.reason == NAME_TAKEN else ""
        status = status_of(seen, step(seen), self.now(), taken)
        if taken and status.conditions != seen.job.status.conditions:
            self.applier.tell(seen.job, Note(NAME_TAKEN, taken, warning=True))
        await self.applier.write_status(DIJOB, seen.job, status.manifest(), seen.job.status.manifest())
        self.phases.show(key, status.phase)
        return Result.again(plan.again_by(self.upkeep.due_in(key, self.now())).again_in)

    def _terms(self, job: DIJob) -> Terms:
        key = self.key()
        token = token_of(key, job.metadata.uid) if key else ""
        return Terms(replace(self.server, tokens=bool(token)), token, self.graceful)


def controller(reconcile: DIJobReconciler, concurrency: int) -> Controller:
    """Return the controller, with the changes that cause a pass."""

    def is_known(key: Key) -> bool:
        return reconcile.caches.jobs.meta(key) is not None

    watched = tuple((kind, those_of(is_known, keys_of)) for kind in (POD, SERVICE))
    quota = ((WORKLOAD, those_of(is_known, job_of)),) if reconcile.admission else ()
    return Controller(
        "dijob",
        with_queue(reconcile, reconcile.admission),
        for_=DIJOB,
        watches=(*watched, *quota),
        concurrency=concurrency,
    )
