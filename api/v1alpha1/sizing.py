"""The facts about sizes that a job's objects hold (api/sizes/facts.py)."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob.api.resources import container_requests, pod_requests
from elasticjob.api.sizes.facts import JobFacts, Placement
from elasticjob.api.sizes.need import Need, Nodes
from elasticjob.api.sizes.role import Role
from elasticjob.api.v1alpha1.checks.common import node as place_of
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ReplicaSpec
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.placing import with_resource


def facts_of(job: ElasticJob) -> JobFacts:
    """Return the user's settings of a job's sizes."""
    return JobFacts(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        strategy=job.spec.distribution_strategy.value,
        mode=job.spec.optimize_mode,
        roles={role: role_of(job, role) for role in job.spec.roles},
        limits=_text(job.spec.resource_limits),
    )


def role_of(job: ElasticJob, role: str) -> Role:
    """Return the user's settings of a role."""
    spec, range_ = job.spec.roles[role], job.spec.range_of(role)
    return Role(
        count=spec.replicas,
        least=range_.least,
        most=range_.most,
        unit=range_.unit,
        beside=range_.beside,
        auto=spec.auto_scale,
        resource=container_requests(spec.main_container or {}).manifest(),
        around=_around(spec),
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


def need_of(
    job: ElasticJob,
    counts: Mapping[str, int],
    resources: Mapping[str, Mapping[str, str]],
    own: Mapping[str, Mapping[str, str]],
) -> Need:
    """Return what pods of a job need: so many of each role, whose main containers get these resources.

    `own` are the resources of single nodes, by their names. Raises MalformedQuantity.
    """
    return Need({role: _nodes(job, role, n, resources.get(role, {}), own) for role, n in counts.items()})


def _nodes(
    job: ElasticJob, role: str, count: int, resource: Mapping[str, str], own: Mapping[str, Mapping[str, str]]
) -> Nodes:
    spec, name = job.spec.roles[role], job.metadata.name
    single = (amounts for node, amounts in own.items() if place_of(name, (role,), node))
    return Nodes(
        count,
        pod_requests(with_resource(spec, resource)),
        tuple(pod_requests(with_resource(spec, {**resource, **amounts})) for amounts in single),
    )


def _around(spec: ReplicaSpec) -> dict[str, str]:
    """Requests of the pod beside those of its main container."""
    containers = [each for each in spec.pod.get("containers") or [] if each is not spec.main_container]
    return pod_requests({**spec.pod, "containers": containers}).manifest()


def _text(amounts: Mapping[str, object]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
