"""Resources that the user changes in a template of a suspended job: what a plan gave before gives way.

The amounts of all templates are remembered at the JobResource. One that differs now becomes a manual
ScalePlan where a plan, or growth after an OOM kill, has set that resource of the role or of a node of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from elasticjob.api.v1alpha1.checks.common import node as place_of
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.controllers.elasticjob.objects import template_amounts
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.elasticjob.sizes import all_fields, scale_plan
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.plan import SOON, Plan
from elasticjob.kube.objects.kinds import Manifest

FOLLOWED: Final = "TemplateFollowed"
WAITING: Final = (None, PlanPhase.PENDING)


def follow_the_templates(seen: Seen, now: datetime) -> Plan | None:
    """Values that the user edited in a template replace those of earlier plans, before pods are created."""
    if seen.resource is None:
        return None
    name = names.template_plan(seen.job.metadata.name, seen.job.metadata.generation)
    waits = any(plan.metadata.name == name and plan.status.phase in WAITING for plan in seen.plans)
    if waits and seen.begins:
        return Plan(FOLLOWED, f"{name} is carried out first", again_in=SOON)
    if seen.last_templates in (None, template_amounts(seen.job)):
        return None
    remember = (all_fields(seen, templates=template_amounts(seen.job)),)
    changed = {role: amounts for role in seen.job.spec.roles if (amounts := _differences(seen, role))}
    changes = {"replicaResourceSpecs": _roles(seen, changed), "migratePods": list(_nodes(seen, changed))}
    if not any(changes.values()):
        return Plan(FOLLOWED, "no plan has set what the templates say now", groups=(remember,), quiet=True)
    told = "; ".join(
        f"{role} {name} {amount}" for role, amounts in changed.items() for name, amount in amounts.items()
    )
    written = {field: value for field, value in changes.items() if value}
    plan = scale_plan(seen, name, written, f"the template says {told}"[:1024], manual=True)
    return Plan(FOLLOWED, f"the template says {told}: ScalePlan {name}", groups=((plan,), remember))


def _differences(seen: Seen, role: str) -> dict[str, str]:
    """The amounts in a role's template that differ from those that are remembered."""
    before = (seen.last_templates or {}).get(role, {})
    now = template_amounts(seen.job).get(role, {})
    return {name: amount for name, amount in now.items() if before.get(name) != amount}


def _roles(seen: Seen, changed: Mapping[str, Mapping[str, str]]) -> Manifest:
    given = seen.resource.spec.replica_resource_specs if seen.resource else {}
    found = {
        role: {name: amounts[name] for name in amounts if name in given[role].resource}
        for role, amounts in changed.items()
        if role in given
    }
    return {role: {"resource": resource} for role, resource in found.items() if resource}


def _nodes(seen: Seen, changed: Mapping[str, Mapping[str, str]]) -> Iterator[Manifest]:
    for node in seen.resource.spec.nodes if seen.resource else ():
        place = place_of(seen.job.metadata.name, changed, node.name)
        amounts = changed[place.role] if place else {}
        if resource := {name: amounts[name] for name in amounts if name in node.resource}:
            yield {"name": node.name, "resource": resource}
