"""What objects of the cluster say about the size of a job."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob.api.resources import pod_requests
from elasticjob.api.v1alpha1.common import WORKER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.master.scaling.state import Mode, Placed, Role, Wish


def wish_of(job: ElasticJob) -> Wish:
    """Return what the user says about sizes."""
    roles = {role: _role(job, role) for role in job.spec.roles}
    limits = {name: str(amount) for name, amount in job.spec.resource_limits.items()}
    mode = Mode(job.spec.optimize_mode.value)
    return Wish(mode=mode, strategy=job.spec.distribution_strategy.value, roles=roles, limits=limits)


def placed_of(resource: JobResource | None, plans: Iterable[ScalePlan]) -> Placed:
    """Return what should run now, and the plans that are not finished."""
    unfinished = (plan for plan in plans if not (plan.status.phase and plan.status.phase.finished))
    names = tuple(sorted(plan.metadata.name for plan in unfinished))
    if resource is None:
        return Placed(open=names)
    specs = resource.spec.replica_resource_specs
    return Placed(
        sizes={role: spec.replicas for role, spec in specs.items() if spec.replicas is not None},
        resources={role: _text(spec.resource) for role, spec in specs.items() if spec.resource},
        nodes={node.name: _text(node.resource) for node in resource.spec.nodes},
        open=names,
    )


def _role(job: ElasticJob, role: str) -> Role:
    spec = job.spec.roles[role]
    return Role(
        count=spec.replicas,
        least=spec.bounds.least,
        most=spec.bounds.most,
        unit=job.spec.node_unit if role == WORKER else 1,
        auto=spec.auto_scale,
        resource=pod_requests(spec.pod).manifest(),
    )


def _text(amounts: object) -> dict[str, str]:
    assert isinstance(amounts, dict)
    return {name: str(amount) for name, amount in amounts.items()}
