"""Which of a job's ScalePlans is newer.

A creationTimestamp has seconds, and API servers have clocks of their own. So plans for what a user asks of
the ElasticJob are in the order of the generations that their names have; the others keep their places.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob.api.readings import is_number, version
from elasticjob.api.v1alpha1.scaleplan import ScalePlan


def by_age(plans: Iterable[ScalePlan]) -> tuple[ScalePlan, ...]:
    """Return the plans of a job, the oldest first; those for what a user asks by the generations they name.

    Within a second the automatic plans come first, so that a user's is newer, and plans without a status are
    newer than those with one. Among the former the resourceVersion is that of the creation, since only the
    controller of plans changes them.
    """
    ordered = sorted(plans, key=_age)
    asked = {plan.metadata.uid: asked_in(plan.spec.owner_job, plan.metadata.name) for plan in ordered}
    users = iter(sorted((p for p in ordered if asked[p.metadata.uid]), key=lambda p: asked[p.metadata.uid]))
    return tuple(next(users) if asked[plan.metadata.uid] else plan for plan in ordered)


def user_plan(job: str, generation: int) -> str:
    """Return the name of the ScalePlan for what the user asks for in this generation of the job."""
    return f"{job}-user-{generation}"


def asked_in(job: str, plan: str) -> tuple[int, ...]:
    """Return the generations in the name of a plan for what a user asks: that of the job, then that of its
    JobResource where it was asked again; () for other plans.
    """
    text = plan.removeprefix(f"{job}-user-")
    numbers = text.split("-")
    return tuple(map(int, numbers)) if text != plan and all(map(is_number, numbers)) else ()


def _age(plan: ScalePlan) -> tuple[float, bool, bool, int, str]:
    about, seen = plan.metadata, plan.status.phase is not None
    created = about.creation_timestamp.timestamp() if about.creation_timestamp else 0.0
    return created, plan.manual, not seen, version(about.resource_version), about.name
