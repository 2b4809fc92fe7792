"""The operator's rules for a master that makes the pods of its job itself: the same plans, the same pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.order import user_plan
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.elasticjob.objects import job_resource, sizes_of_user
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.jobresource.status import describe
from elasticjob.controllers.nodes.relaunch import life_of
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.plan import Create, Delete, Resize
from elasticjob.controllers.scaleplan.fold import Impossible, fold
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Pod
from elasticjob.master.scalers.pods import Deletion, Patch, Work


class Everywhere:
    """The machines of a cluster whose Nodes may not be read: all are there."""

    def __contains__(self, name: object) -> bool:
        return True


EVERYWHERE: Final = Everywhere()


@dataclass(frozen=True)
class OperatorsRules:
    """What the ScalePlan and JobResource controllers would do, for one job."""

    log_format: str = ""

    def first(self, job: ElasticJob) -> Manifest:
        """Return the JobResource with the sizes that the user asks for."""
        return job_resource(job).manifest

    def wish(self, job: ElasticJob, resource: JobResource) -> tuple[ScalePlan, Manifest] | None:
        """Return a manual plan for sizes that the user has changed, as `kubectl scale` does."""
        sizes = sizes_of_user(job)
        said = resource.metadata.annotations.get(names.ASKED)
        if said in (None, names.written(sizes)):
            return None
        plan: Manifest = {
            "apiVersion": SCALEPLAN.api_version,
            "kind": SCALEPLAN.name,
            "metadata": {"name": user_plan(job.metadata.name, job.metadata.generation)},
            "spec": {
                "ownerJob": job.metadata.name,
                "replicaResourceSpecs": {role: {"replicas": count} for role, count in sizes.items()},
                "manualScaling": True,
                "reason": "the user asks for it",
            },
        }
        told = {names.ASKED: names.written(sizes), names.ASKED_AT: str(job.metadata.generation)}
        return SCALEPLAN.convert(plan), told

    def fold(
        self, job: ElasticJob, resource: JobResource, plan: ScalePlan
    ) -> tuple[Manifest, tuple[str, ...]]:
        """Return the new sizes and resources, within bounds and limits. Raises ValueError."""
        try:
            found = fold(job, resource, plan)
        except Impossible as error:
            raise ValueError(str(error)) from error
        return found.manifest(), found.changes

    def work(
        self, job: ElasticJob, resource: JobResource, pods: Iterable[Pod], master: str, now: datetime
    ) -> Work:
        """Return the creations, deletions and resizes of the JobResource controller."""
        ours = job.model_copy(update={"spec": job.spec.model_copy(update={"managed_by": ""})})
        spec = resource.spec.model_copy(update={"suspend": job.spec.suspend})
        found = tuple(life for pod in pods if (life := life_of(pod, EVERYWHERE)))
        seen = Seen(
            resource.model_copy(update={"spec": spec}), ours, found, master, log_format=self.log_format
        )
        plan = decide(seen, now)
        aloud = replace(plan, quiet=False)  # no other controller says it
        return Work(
            create=tuple(action.manifest for action in plan.actions if isinstance(action, Create)),
            delete=tuple(Deletion(a.name, a.uid, a.grace) for a in plan.actions if isinstance(a, Delete)),
            resize=tuple(_patch(action) for action in plan.actions if isinstance(action, Resize)),
            status=describe(seen, plan, now).manifest(),
            sentences=tuple(f"{note.reason}: {note.sentence}" for note in aloud.notes),
            again_in=plan.again_in,
        )


def _patch(action: Resize) -> Patch:
    spec = {"containers": [{"name": action.container, "resources": action.resources}]}
    return Patch(action.pod, action.uid, spec, {names.RESIZE: "refused"})
