"""What a JobResource of a user or a tool asks for, in the present or the older (EasyDL) form.

worker, evaluator, parameter_server           replicaResourceSpecs[worker], [evaluator], [ps]
resource_updation                             nodes
resource: {memory: 1024, disk: 4096}          {memory: 1024Mi, ephemeral-storage: 4096Mi}
resource: {gpu: 1}                            {nvidia.com/gpu: 1}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elasticjob.api.roles import EVALUATOR, PS, WORKER
from elasticjob.api.v1alpha1.jobresource import JobResource, JobResourceSpec, OlderReplicas
from elasticjob.kube.objects.kinds import Manifest

OLDER_RESOURCES: Final[Mapping[str, str]] = {"disk": "ephemeral-storage", "gpu": "nvidia.com/gpu"}
IN_MEBIBYTES: Final = frozenset({"memory", "disk"})
BARE: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def is_request(resource: JobResource) -> bool:
    """Whether this is a request: the JobResource with its job's name is the job's own."""
    return resource.metadata.name != resource.spec.selector.name


def sizes(spec: JobResourceSpec) -> dict[str, Manifest]:
    """Return the number and resources of nodes that are asked for, by role."""
    found: dict[str, Manifest] = {}
    for role, before in older(spec):
        found[role] = {"replicas": before.replicas, "resource": amounts(before.resource)}
    for role, one in spec.replica_resource_specs.items():
        found[role] = {"replicas": one.replicas, "resource": dict(one.resource)}
    return {role: _without_absent(one) for role, one in found.items()}


def nodes(spec: JobResourceSpec) -> list[Manifest]:
    """Return the nodes that are asked to have resources of their own."""
    newer = [{"name": one.name, "resource": dict(one.resource)} for one in spec.nodes]
    return newer + [{"name": one.name, "resource": amounts(one.resource)} for one in spec.resource_updation]


def older(spec: JobResourceSpec) -> Iterator[tuple[str, OlderReplicas]]:
    """The roles that are given in the older form."""
    given = ((PS, spec.parameter_server), (WORKER, spec.worker), (EVALUATOR, spec.evaluator))
    yield from ((role, one) for role, one in given if one is not None)


def amounts(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return resources in the older form with today's names and units: a bare number of memory is MiB."""
    return {
        OLDER_RESOURCES.get(name, name): f"{amount}Mi"
        if name in IN_MEBIBYTES and BARE.fullmatch(str(amount))
        else amount
        for name, amount in resource.items()
    }


def _without_absent(one: Manifest) -> Manifest:
    return {name: value for name, value in one.items() if value not in (None, {})}
