"""The sizes that a job's objects ask for, as masters and Brain tell each other (api/rpc/brain.py)."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob.api.resources import pod_requests
from elasticjob.api.rpc.brain import JobFacts, Placement, RoleFacts
from elasticjob.api.v1alpha1.common import WORKER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JobResource


def facts_of(job: ElasticJob) -> JobFacts:
    """Return the user's settings of a job's sizes."""
    return JobFacts(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        strategy=job.spec.distribution_strategy.value,
        roles={role: _role(job, role) for role in job.spec.roles},
        limits=_text(job.spec.resource_limits),
    )


def _role(job: ElasticJob, role: str) -> RoleFacts:
    spec = job.spec.roles[role]
    return RoleFacts(
        count=spec.replicas,
        least=spec.bounds.least,
        most=spec.bounds.most,
        unit=job.spec.node_unit if role == WORKER else 1,
        auto=spec.auto_scale,
        resource=pod_requests(spec.pod).manifest(),
    )


def placement_of(resource: JobResource) -> Placement:
    """Return the desired sizes and resources, and the capacity left in the cluster."""
    specs, status = resource.spec.replica_resource_specs, resource.status
    return Placement(
        sizes={role: spec.replicas for role, spec in specs.items() if spec.replicas is not None},
        resources={role: _text(spec.resource) for role, spec in specs.items() if spec.resource},
        nodes={node.name: _text(node.resource) for node in resource.spec.nodes},
        room=dict(status.room) if status.room else None,
        machine=_text(status.machine) if status.machine else None,
    )


def _text(amounts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
