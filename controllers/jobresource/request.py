"""A JobResource of another name than its job's: a request of a user or a tool, which a ScalePlan carries out.

    no job of the selected name                   Ready=False, JobNotFound; looked at again
    no plan for this generation, and none before  make the plan: manual, named after job, request, generation
    its plan is open                              Ready=False, Scaling
    its plan has ended                            Ready as the plan says; observedGeneration remembers it

So there is one writer of nodes, and the request is carried out once, whatever is restarted or applied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from elasticjob.api.v1alpha1 import requests
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_SCALE_TYPE
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource, JobResourceStatus
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase, ScalePlan
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.plan import LATER, REFUSED, Create, Plan
from elasticjob.controllers.passes.rules import DELETING, Rule, first, leave_it_to_others
from elasticjob.kube.objects.conditions import set_condition
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Condition

JOB_NOT_FOUND: Final = "JobNotFound"
ASKED: Final = "Scaling"


@dataclass(frozen=True)
class Seen:
    """A request, the job that it is about, and the job's plans."""

    resource: JobResource
    job: ElasticJob | None = None
    plans: tuple[ScalePlan, ...] = ()

    @property
    def plan(self) -> ScalePlan | None:
        """The plan of this generation of the request."""
        name = plan_name(self.resource)
        return next((plan for plan in self.plans if plan.metadata.name == name), None)


def plan_name(resource: JobResource) -> str:
    """Return the name of the plan that carries out this generation of a request."""
    about = resource.metadata
    return f"{resource.spec.selector.name}-request-{about.name}-{about.generation}"


def decide(seen: Seen, now: datetime) -> Plan:
    """Return the plan of the first rule that applies."""
    return first(RULES, seen, now)


def leave_what_is_deleted(seen: Seen, now: datetime) -> Plan | None:
    """A request that is being deleted asks for nothing."""
    return Plan(DELETING) if seen.resource.metadata.deletion_timestamp else None


def wait_for_the_job(seen: Seen, now: datetime) -> Plan | None:
    """A request needs a job to change."""
    if seen.job is not None:
        return None
    sentence = f"there is no ElasticJob {seen.resource.spec.selector.name}"
    return Plan(JOB_NOT_FOUND, sentence, again_in=LATER)


def ask_once(seen: Seen, now: datetime) -> Plan | None:
    """Each generation of a request becomes one plan."""
    remembered = seen.resource.status.observed_generation == seen.resource.metadata.generation
    if seen.job is None or seen.plan is not None or remembered:
        return None
    about = seen.resource.metadata
    sentence = f"ScalePlan {plan_name(seen.resource)} carries out what JobResource {about.name} asks for"
    return Plan(ASKED, sentence, groups=((scale_plan(seen.resource, seen.job),),))


RULES: Final[tuple[Rule[Seen], ...]] = (leave_what_is_deleted, leave_it_to_others, wait_for_the_job, ask_once)


def scale_plan(resource: JobResource, job: ElasticJob) -> Create:
    """Return the plan; sizes out of a role's bounds are brought within them, and the reason says so."""
    asked, remarks = requests.sizes(resource.spec), list[str]()
    for role, one in asked.items():
        if role in job.spec.roles and "replicas" in one:
            wanted, one["replicas"] = one["replicas"], job.spec.range_of(role).clamp(one["replicas"])
            if wanted != one["replicas"]:
                remarks.append(f"{role} {wanted}, of which the job allows {one['replicas']}")
    why = f"JobResource {resource.metadata.name} asks for it" + "".join(f"; {remark}" for remark in remarks)
    spec: Manifest = {"ownerJob": job.metadata.name, "manualScaling": True, "reason": why[:1024]}
    spec |= {"replicaResourceSpecs": asked} if asked else {}
    spec |= {"migratePods": found} if (found := requests.nodes(resource.spec)) else {}
    metadata = {
        "name": plan_name(resource),
        "namespace": resource.metadata.namespace,
        "labels": {LABEL_JOB: job.metadata.name, LABEL_SCALE_TYPE: "manual"},
        "annotations": {names.REQUEST: resource.metadata.name},
        "ownerReferences": [controlled_by(job)],
    }
    return Create(SCALEPLAN, manifest_of(SCALEPLAN, metadata, spec=spec))


def describe(seen: Seen, plan: Plan, now: datetime) -> JobResourceStatus:
    """Return the status of a request: that of its plan, and for good once that has ended."""
    old, generation = seen.resource.status, seen.resource.metadata.generation
    made = seen.plan
    ended = made is not None and made.status.phase is not None and made.status.phase.is_terminal
    if made is not None and ended:
        last = made.status.conditions[-1] if made.status.conditions else None
        ready = made.status.phase is PlanPhase.SUCCEEDED
        reason, message = (last.reason, last.message) if last else (str(made.status.phase), "")
    elif plan.reason in (JOB_NOT_FOUND, REFUSED):
        ready, reason, message = False, plan.reason, plan.sentence
    elif made is None and plan.reason != ASKED:
        return old  # it was carried out, and its plan is forgotten
    else:
        ready, reason, message = False, ASKED, f"ScalePlan {plan_name(seen.resource)} is being carried out"
    condition = Condition(
        type="Ready",
        status="True" if ready else "False",
        reason=reason,
        message=message,
        observed_generation=generation,
    )
    conditions = set_condition(old.conditions, condition, now)
    return JobResourceStatus(
        conditions=conditions, observed_generation=generation if ended else old.observed_generation
    )
