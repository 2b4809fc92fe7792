"""The objects that plans of controllers write, for tests."""

from __future__ import annotations

from elasticjob.controllers.passes.plan import Apply, Create, CreateOrApply, Plan
from elasticjob.kube.objects.kinds import Manifest


def manifests(plan: Plan) -> list[Manifest]:
    """The objects that a plan creates or applies, in their order."""
    return [each.manifest for each in plan.actions if isinstance(each, Create | CreateOrApply | Apply)]


def annotations_of(plan: Plan) -> dict[str, str]:
    """The annotations of the only object that a plan writes."""
    [written] = manifests(plan)
    found: dict[str, str] = written["metadata"]["annotations"]
    return found
