"""The scaler of jobs on a cluster: each change is a ScalePlan, which the operator carries out."""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob.api.resources import Resources
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, plan_manifest
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists, KubeError
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.master.scalers.scaler import ScalerError
from elasticjob.master.scaling.plan import Change, Group

PLAIN = SCALEPLAN.untyped()


class ScalePlanScaler:
    """Writes ScalePlans of one job; with it they go."""

    def __init__(self, client: Client, job: ElasticJob) -> None:
        self._client, self._job = client, Key(job.metadata.namespace, job.metadata.name)
        self._owner = owner_reference(job, ELASTICJOB, controller=False)

    async def apply(self, change: Change) -> None:
        """Create the plan; it exists already if this change was recorded before."""
        try:
            await self._client.create(PLAIN, manifest(self._job, change, self._owner))
        except AlreadyExists:
            return
        except KubeError as error:
            raise ScalerError(f"ScalePlan {change.key} is not written: {error}") from error


def manifest(job: Key, change: Change, owner: Manifest | None = None) -> Manifest:
    """Return the ScalePlan of a change; `owner` is the reference to its job."""
    spec: Manifest = {
        "replicaResourceSpecs": {role: _group(group) for role, group in change.groups.items()},
        "createPods": [
            {"name": n.name, "type": n.role, "rankIndex": n.index, "resource": n.resource.manifest()}
            for n in change.create
        ],
        "removePods": [{"name": name} for name in change.remove],
        "migratePods": _named(change.migrate),
        "psHosts": list(change.ps_hosts),
        "reason": change.reason[:1024],
    }
    return plan_manifest(change.key, job, spec, owner, manual=False)


def _group(group: Group) -> Manifest:
    count = {} if group.count is None else {"replicas": group.count}
    return count | ({"resource": group.resource.manifest()} if group.resource else {})


def _named(nodes: Mapping[str, Resources]) -> list[Manifest]:
    return [{"name": name, "resource": resource.manifest()} for name, resource in nodes.items()]
